-- SPDX-License-Identifier: MIT
-- Ending a run that goes on in its box: the file `stop` in its folder, which the supervisor
-- answers with TERM, grace and KILL for the whole tree. Where no supervisor answers, the box goes.
local M = {}

local HONOUR_MS = 45000 -- from the file to the end; the supervisor's own grace is 5 s

local function write(job)
  return job:try(function()
    return job.engine.loop:await(job.provider.verbs:upload {
      box = job.box, files = { { path = job.run_dir .. "/stop", data = "stop\n" } },
    })
  end)
end

local function work(job, delay_ms)
  local loop = job.engine.loop
  if delay_ms > 0 and not loop:sleep(delay_ms) then return end
  -- Before the supervisor runs, a checkpoint of the launch ends the run.
  while not job.watch_op do
    if job.over or not loop:sleep(50) then return end
  end
  if job.over then return end
  job.stop_sent = true
  if write(job) then
    job:poke()
    if not loop:sleep(HONOUR_MS) then return end
  end
  if job.over then return end
  job.box_killed = true
  loop:await(job.provider.verbs:kill { id = job.box.id })
  job:poke()
end

-- What replaces what: a person's wish everything, a loop the wait for an end.
local WEIGHT = { terminal = 1, loop = 2, cancel = 3 }

--- Asks for the end of what runs.
--- @param why "cancel"|"loop"|"terminal"
--- @param delay_ms number
--- @return boolean asked  false when it was asked for already
function M.ask(job, why, delay_ms)
  if job.stopping and WEIGHT[job.stopping] >= WEIGHT[why] then return false end
  job.stopping = why
  if job.stopper then job.stopper:cancel() end
  job.stopper = job.engine.loop:spawn(work, job, delay_ms)
  return true
end

--- Takes back a request whose delay has not passed; one that has reached the box stands.
--- @param why "terminal"
function M.withdraw(job, why)
  if job.stopping ~= why or job.stop_sent then return end
  job.stopping = nil
  if job.stopper then job.stopper:cancel() end
  job.stopper = nil
end

return M
