-- SPDX-License-Identifier: MIT
-- A run on paper: as the object of --json, and its result as a person reads it. What came out of a
-- box is printed with its terminal escapes neutralised.
local figures = require "crewbox.cli.shell.figures"
local json = require "crewbox.json"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {}

local FIELDS = { "id", "state", "reason", "agent", "model", "title", "repo", "session_id", "progress",
  "created_at", "started_at", "finished_at", "outcome" }

--- The object of a run (docs/reference/cli.md).
--- @param run table a row
--- @return table
function M.object(run)
  local o = {}
  for _, name in ipairs(FIELDS) do o[name] = run[name] end
  o.over = run.accepted_at ~= nil
  return o
end

--- @param result table of client:result
--- @return table
function M.result_object(result)
  local o = M.object(result.run)
  o.findings = result.findings
  o.patch = result.patch
  return o
end

local function tokens_of(outcome)
  local u = outcome.usage
  if type(u) ~= "table" then return nil end
  local input = (u.input or 0) + (u.cache_read or 0) + (u.cache_write or 0)
  return ("%s tokens in (%s of them cached), %s out"):format(figures.short(input), figures.short(u.cache_read or 0),
    figures.short(u.output or 0))
end

--- One line of figures: how long, how many turns and tokens, what it cost.
--- @return string
function M.figures(run)
  local outcome, parts = run.outcome or {}, {}
  if run.started_at and run.finished_at then
    parts[#parts + 1] = figures.elapsed(run.finished_at - run.started_at)
  end
  if type(outcome.turns) == "number" then parts[#parts + 1] = figures.count(outcome.turns, "turn") end
  parts[#parts + 1] = tokens_of(outcome)
  if type(outcome.cost_usd) == "number" then parts[#parts + 1] = ("$%.4f"):format(outcome.cost_usd) end
  return table.concat(parts, ", ")
end

local VERDICT = {
  succeeded = { "green", "succeeded" }, failed = { "red", "failed" }, cancelled = { "yellow", "was cancelled" },
  timed_out = { "red", "ran out of time" }, lost = { "red", "was lost" },
}

--- The one line that says how a run ended, with the reason.
--- @param paint fun(name: string, text: string): string
function M.verdict(run, paint)
  local v = VERDICT[run.state] or { "cyan", "is " .. run.state }
  local line = ("%s %s"):format(run.id, paint(v[1], v[2]))
  local why = {}
  if run.reason then why[#why + 1] = run.reason end
  local outcome = run.outcome
  if outcome and type(outcome.error) == "string" and outcome.error ~= "" then
    why[#why + 1] = text.line(outcome.error, 400)
  end
  if #why > 0 then line = line .. ": " .. table.concat(why, ": ") end
  local counted = M.figures(run)
  return counted ~= "" and ("%s (%s)"):format(line, counted) or line
end

local CHANGE = { added = "A", modified = "M", deleted = "D", mode = "m", type = "T" }

--- Prints a result: findings on standard output, all else on standard error.
--- @param result table of client:result
function M.result(result)
  local run, outcome = result.run, result.outcome or {}
  local paint = term.painter(2)
  local findings = result.findings or outcome.text
  if type(findings) == "string" and findings:find("%S") then
    io.stdout:write(text.plain(findings), findings:sub(-1) == "\n" and "" or "\n")
    io.stdout:flush()
  end
  local function say(line) io.stderr:write(line, "\n") end
  for _, note in ipairs(type(outcome.notes) == "table" and outcome.notes or {}) do
    say("note: " .. text.line(tostring(note), 400))
  end
  local changed = type(outcome.changes) == "table" and outcome.changes or {}
  for i, entry in ipairs(changed) do
    if i > 40 then
      say(("  ... and %d more"):format(#changed - 40))
      break
    end
    say(("  %s %s"):format(CHANGE[entry.change] or "?", text.line(tostring(entry.path), 200)))
  end
  say(M.verdict(run, paint))
  if result.patch and #changed > 0 then
    say(("%s changed; see `crewbox result --patch %s`, take it with `crewbox apply %s`")
      :format(figures.count(#changed, "file"), run.id, run.id))
  end
end

--- Prints an object as one line of JSON.
function M.json(o) print(json.encode(o)) end

return M
