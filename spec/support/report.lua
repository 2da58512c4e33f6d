-- SPDX-License-Identifier: MIT
-- Output handler for busted: names what failed and ends with "N passed, N failed".
return function()
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()

  handler.suiteEnd = function()
    for _, list in ipairs { handler.failures, handler.errors } do
      for _, f in ipairs(list) do
        local at = f.trace and f.trace.short_src and
          ("%s:%d"):format(f.trace.short_src, f.trace.currentline or 0) or "?"
        local text = type(f.message) == "string" and f.message or
          require("pl.pretty").write(f.message or "?")
        print(("FAILED %s\n  %s\n  %s"):format(f.name or "?", at, text))
      end
    end
    local bad = handler.failuresCount + handler.errorsCount + handler.pendingsCount
    -- A pending test is one that does not run: it counts as failed.
    for _, p in ipairs(handler.pendings) do print("PENDING " .. (p.name or "?")) end
    print(("%d passed, %d failed"):format(handler.successesCount, bad))
    io.stdout:flush()
    return nil, true
  end
  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  return handler
end
