-- SPDX-License-Identifier: MIT
-- The configuration as data: name, type, default, range and description of every key that is
-- ours. check.lua walks it; docs/reference/configuration.md says the same for people, and a
-- spec holds the two together.
--
-- A field is {type, default?, one_of?, min?, max?, pattern?, resolve?, doc}.
--   type     section (fields), list (item), map (item), string, number, integer, boolean
--   open     section: keys that are not ours are kept as they are
--   pattern  {lua pattern, what it should look like}
--   resolve  `${VAR}` in it is replaced from the environment when the configuration is loaded
--   required must be there (within a section that is there)
local harness = require "crewbox.harness"

local function text(field)
  field.type = "string"
  return field
end

local step = {
  type = "section",
  doc = "one setup step, run as root of the box before the agent starts",
  fields = {
    name = text { required = true, doc = "shown while it runs and when it fails" },
    files = { type = "map", item = text { doc = "content" }, default = {},
      doc = "files to write first, by path; a plain path is below the box's home" },
    commands = { type = "list", item = text { doc = "one command line" }, default = {},
      doc = "run by sh, one after the other; the first that fails ends the run" },
    env = { type = "map", item = text { doc = "value" }, default = {},
      doc = "environment of this step's commands; `${VAR}` is resolved when the run starts" },
    brief = text { default = "", doc = "told to the agent" },
    timeout_seconds = { type = "number", default = 600, min = 1, max = 86400,
      doc = "bound of the whole step" },
  },
}

local sandbox = {
  type = "section",
  default = {},
  doc = "where boxes come from",
  fields = {
    type = text { default = "local", one_of = { "local", "e2b" },
      doc = "`local`: boxes on this machine; `e2b`: E2B cloud, or a server that speaks its protocol" },
    api_key = text { default = "", resolve = true, secret = true,
      doc = "e2b: the key; empty takes E2B_API_KEY from the environment" },
    domain = text { default = "", resolve = true,
      pattern = { "^[%w][%w.-]*$", "a host name such as e2b.example.com" },
      doc = "e2b: domain of a self-hosted installation; empty is E2B's cloud" },
    api_url = text { default = "", resolve = true,
      pattern = { "^https?://[^%s/]+", "a URL such as https://api.example.com" },
      doc = "e2b: address of the control plane, instead of api.DOMAIN" },
    sandbox_url = text { default = "", resolve = true,
      pattern = { "^https?://[^%s/]+", "a URL such as https://boxes.example.com" },
      doc = "e2b: one address for all boxes, instead of PORT-ID.DOMAIN" },
    socket = text { default = "", resolve = true,
      pattern = { "^/", "an absolute path" },
      doc = "local: socket of a crewboxd that already runs; empty starts one when it is needed" },
    template = text { default = "", resolve = true,
      doc = "what a box starts from; empty takes the agent's own template, else `base`" },
    default_coding_agent = text { default = "claude-code", one_of = harness.names(),
      doc = "agent of a run that names none" },
    default_timeout_seconds = { type = "number", default = 900, min = 60, max = 86400,
      doc = "lease of a box: how long it outlives an engine that has gone. Not a limit of a run" },
    default_pause_ttl_seconds = { type = "number", default = 1800, min = 0, max = 2592000,
      doc = "how long a box waits, paused, for the answer to a question; a run of `crewbox run` asks none" },
    network = { type = "section", default = {}, doc = "what a box may reach",
      fields = {
        allow = { type = "list", default = {},
          item = text { resolve = true,
            pattern = { "^%*?[%w.-]*[%w]:%d+$", "NAME:PORT, for instance example.com:443" },
            doc = "NAME:PORT" },
          doc = "hosts beside the model's endpoint and the usual registries and code hosts" },
      } },
    agents = { type = "section", default = {}, doc = "what is told to the agents",
      fields = {
        ["claude-code"] = { type = "section", default = {}, doc = "Claude Code",
          fields = {
            max_turns = { type = "integer", min = 1, max = 100000, doc = "end the run after that many turns; default: none" },
            max_budget_usd = { type = "number", min = 0.01, max = 100000, doc = "end the run at that cost; default: none" },
          } },
        opencode = { type = "section", default = {}, doc = "OpenCode",
          fields = {
            max_turns = { type = "integer", min = 1, max = 100000, doc = "end the run after that many turns; default: 1000" },
            max_budget_usd = { type = "number", min = 0.01, max = 100000,
              doc = "end the run at that cost, for models whose prices OpenCode knows; default: none" },
          } },
        command = { type = "section", default = {}, doc = "any other program",
          fields = {
            program = { type = "list", min_items = 1, item = text { doc = "one word" },
              doc = "program and arguments that get the brief on standard input; without it the brief is a script for sh" },
          } },
      } },
    setup = { type = "list", item = step, default = {},
      doc = "steps that prepare every box" },
  },
}

return {
  type = "section",
  open = true,
  fields = {
    providers = { type = "section", open = true, default = {},
      fields = { sandbox = sandbox } },
  },
}
