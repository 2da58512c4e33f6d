-- SPDX-License-Identifier: MIT
-- The figures at the end of the demo: tokens, turns, whose milliseconds they were, and that no box
-- is left. Called by `run` with the id of the run, and `scripted` when the model is.
local client = require "crewbox.engine.client"
local core = require "crewbox.core"
local show = require "crewbox.cli.shell.show"

local BOX_GONE_MS = 10000

local c = assert(client.open())
local run = assert(c:find(arg[1]))
print(("agent     %s%s"):format(show.figures(run), arg[2] == "scripted" and " (as the script says)" or ""))

local t = run.outcome.timing
print(("crewbox   %d ms of its own: %d to pack the tree, %d until the agent ran, %d to collect, compare and store")
  :format(t.own_ms, t.prepare_ms, t.launch_ms, t.collect_ms))

-- The box goes right after the delivery; wait for it, bounded.
local deadline = core.sys.now_ms() + BOX_GONE_MS
local left
repeat
  left = c.loop:call(c.store.count_boxes, c.store)
  if left > 0 then c.loop:call(c.loop.sleep, c.loop, 50) end
until left == 0 or core.sys.now_ms() > deadline
print(("boxes     %d left"):format(left))
c:close()
os.exit(left == 0 and 0 or 1)
