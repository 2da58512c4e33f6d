-- SPDX-License-Identifier: MIT
-- Composes what a coding agent is asked to do: the person's brief first, then what it must know
-- about the box and how to report. How a brief is composed is the harness's choice: one with
-- `raw_brief` gets the person's bytes and nothing else.
local M = {}

local ENVIRONMENT = [[

## Your environment

You work alone in an isolated box with a shell, your own files and the usual development tools.
Nobody can answer you while you work: do not ask, decide and say what you decided. Commands may
run without asking for permission. The network reaches package registries, common code hosts and
what was allowed for this task; other hosts do not answer.]]

local TREE = [[

The project is in %s. It is a copy of somebody's working tree: edit it in place. What differs from
the start when you are done is handed back as a patch; you need not commit or push.]]

local NO_HISTORY = [[

The project's history was not sent: git shows one commit that holds the tree as you found it.]]

local REPORT = [[

## Before you finish

Write a report for the person who asked, in Markdown, to %s. Say first whether you succeeded,
partly succeeded or were blocked; then what you changed and why; how you checked it and what the
check printed; and what remains to be done. Writing that file is the last thing you do.
]]

--- @param o table {brief, harness, project, findings, tree, base_commit}
---   brief: the person's bytes; tree: a project was sent; base_commit: git shows one commit
--- @return string bytes
function M.compose(o)
  if o.harness.raw_brief then return o.brief end
  local parts = { o.brief, "\n", ENVIRONMENT }
  if o.tree then
    parts[#parts + 1] = "\n" .. TREE:format(o.project)
    if o.base_commit then parts[#parts + 1] = NO_HISTORY end
  end
  parts[#parts + 1] = "\n" .. REPORT:format(o.findings)
  return table.concat(parts)
end

return M
