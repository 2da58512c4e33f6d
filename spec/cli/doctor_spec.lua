-- SPDX-License-Identifier: MIT
-- crewbox doctor: first what reads the host, with hosts as text; then the verb itself on this host,
-- and on this host with something really broken.
local core = require "crewbox.core"
local doctor = require "crewbox.doctor"
local fixes = require "crewbox.doctor.fixes"
local host = require "crewbox.doctor.host"
local inside = require "crewbox.doctor.inside"
local json = require "crewbox.json"
local mounts = require "crewbox.doctor.mounts"
local shell = require "spec.support.shell"

local function said(topic, ctx)
  local list = {}
  topic.run(ctx, function(state, name, text, fix) list[#list + 1] = { state = state, name = name, text = text, fix = fix } end)
  local by = {}
  for _, check in ipairs(list) do by[check.name] = check end
  return by, list
end

describe("the topic host", function()
  local function with(files, o)
    o = o or {}
    return said(host, { read = function(path) return files[path] end, environ = o.environ or {}, uid = o.uid or 1000,
      remote = o.remote or false })
  end
  local GOOD = { ["/proc/sys/kernel/osrelease"] = "6.1.0-18-amd64\n", ["/etc/os-release"] = 'NAME=x\nPRETTY_NAME="Debian GNU/Linux 12"\n',
    ["/proc/sys/user/max_user_namespaces"] = "96364\n" }
  local function but(changes)
    local files = {}
    for k, v in pairs(GOOD) do files[k] = v end
    for k, v in pairs(changes) do files[k] = v end
    return files
  end

  it("names kernel and distribution", function()
    local by = with(GOOD)
    assert.are.equal("Linux 6.1.0-18-amd64", by.kernel.text)
    assert.are.equal("Debian GNU/Linux 12", by.distribution.text)
    assert.are.equal("ok", by["user namespaces"].state)
  end)
  it("fails for a kernel that is too old, with local boxes only", function()
    local old = but { ["/proc/sys/kernel/osrelease"] = "5.10.0" }
    assert.are.equal("fail", with(old).kernel.state)
    assert.are.equal("warn", with(old, { remote = true }).kernel.state)
    assert.are.equal("ok", with(but { ["/proc/sys/kernel/osrelease"] = "5.12.0" }).kernel.state)
  end)
  it("says that it cannot tell", function()
    local by = with {}
    assert.are.equal("warn", by.kernel.state)
    assert.is_truthy(by.kernel.text:find "cannot be told")
  end)
  for path, c in pairs {
    ["/proc/sys/user/max_user_namespaces"] = { "0\n", "sudo sysctl -w user.max_user_namespaces=15000", root = true },
    ["/proc/sys/kernel/unprivileged_userns_clone"] = { "0\n", "sudo sysctl -w kernel.unprivileged_userns_clone=1" },
    ["/proc/sys/kernel/apparmor_restrict_unprivileged_userns"] = { "1\n", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
  } do
    it("knows the switch " .. path, function()
      local check = with(but { [path] = c[1] })["user namespaces"]
      assert.are.equal("warn", check.state)
      assert.are.equal(c[2], check.fix)
      assert.are.equal(c.root and "warn" or "ok", with(but { [path] = c[1] }, { uid = 0 })["user namespaces"].state)
    end)
  end
  it("sees containers", function()
    for _, files in ipairs { { ["/.dockerenv"] = "" }, { ["/run/.containerenv"] = "" }, { ["/proc/1/cgroup"] = "0::/docker/abc\n" },
      { ["/proc/1/cgroup"] = "0::/kubepods/x\n" }, { ["/run/systemd/container"] = "lxc\n" } } do
      assert.is_truthy(with(but(files)).container.text:find "^this is a container")
    end
    assert.is_truthy(with(GOOD).container.text:find "^nothing says")
  end)
end)

describe("mountinfo", function()
  local TEXT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" ..
    "30 22 0:25 / /var/lib rw - xfs /dev/vdb rw\n31 30 0:26 / /var/lib/a\\040b rw shared:3 master:1 - nfs4 h:/x rw\nbroken\n"
  it("finds the mount of a path", function()
    local list = mounts.parse(TEXT)
    assert.are.equal(3, #list)
    assert.are.equal("ext4", mounts.of(list, "/home/x").type)
    assert.are.equal("ext4", mounts.of(list, "/var/library").type)
    assert.are.equal("xfs", mounts.of(list, "/var/lib/crewbox").type)
    assert.are.equal("nfs4", mounts.of(list, "/var/lib/a b/c").type)
    assert.is_nil(mounts.of({}, "/x"))
  end)
end)

describe("the look from inside", function()
  it("reads what the script prints", function()
    local facts = inside.parse("@ids\n1000\n1000\n@status\nCapEff:\t0000000000000000\nSeccomp:\t2\n@ns\nuser user:[7]\n" ..
      "@limits\nLimit   Soft Limit  Hard Limit  Units\nMax open files            8192                 65536                files\n" ..
      "Max core file size        0                    0                    bytes\n" ..
      "@df\nFilesystem 1024-blocks Used Available Capacity Mounted on\nnone 1024 0 1024 0% /tmp\n@net\nhead\n    lo: 0 0\n" ..
      "@procs\n1 crewbox-init\n7 sh\n@reach\nkcore no\n@own\n/tmp/x\n")
    assert.are.same({ "1000", "1000" }, facts.ids)
    assert.are.equal("0000000000000000", facts.status.CapEff)
    assert.are.equal("user:[7]", facts.ns.user)
    assert.are.same({ soft = 8192, hard = 65536 }, facts.limits.files)
    assert.are.equal(1048576, facts.sizes["/tmp"])
    assert.are.same({ "lo" }, facts.interfaces)
    assert.are.same({ "1 crewbox-init", "7 sh" }, facts.procs)
    assert.are.equal("no", facts.reach.kcore)
    assert.are.same({ "/tmp/x" }, facts.own)
  end)
  it("reads nothing as nothing", function()
    local facts = inside.parse ""
    assert.are.same({}, facts.ids)
    assert.are.same({}, facts.reach)
  end)
end)

describe("the fixes", function()
  local REASONS = {
    { "make the namespaces: Operation not permitted; unprivileged user namespaces are switched off: allow them",
      "sysctl" },
    { "make the namespaces: No space left; raise the sysctls below user.max_*_namespaces", "max_user_namespaces" },
    { "the state folder lies on an overlay file system (a container's own disk?), which cannot carry a box", "CREWBOX_STATE" },
    { "this host cannot isolate a box: mount /proc: Operation not permitted; parts of /proc are covered here", "systempaths=unconfined" },
    { "this host cannot isolate a box: write uid_map: Operation not permitted", "CAP_SETUID" },
    { "build the base layer: give to the box .new-x: Invalid argument", "ordinary user" },
    { "something nobody has seen", "troubleshooting" },
  }
  for _, c in ipairs(REASONS) do
    it("answer: " .. c[1]:sub(1, 90), function() assert.is_truthy(fixes.of(c[1]):find(c[2], 1, true), fixes.of(c[1])) end)
  end
  -- A reason that src/box words differently would lose its fix in silence.
  it("look for words that the sources have", function()
    local sources = ""
    for _, file in ipairs { "box/outer.c", "box/view.c", "box/inner.c", "boxd/base_layer.c", "boxd/box_start.c" } do
      sources = sources .. assert(shell.read("src/" .. file)):gsub('"%s*\n%s*"', "")
    end
    for _, words in ipairs { "unprivileged user namespaces are switched off", "user.max_*_namespaces", "overlay file system",
      "parts of /proc are covered here", "write uid_map", "write gid_map", "a container's filter hides it", "mount calls of Linux 5.12",
      "CONFIG_SECCOMP_FILTER", "crewbox-init", "mounts below /usr", "give to the box" } do
      assert.is_truthy(sources:find(words, 1, true), words)
    end
  end)
end)

describe("crewbox doctor", function()
  local place
  before_each(function() place = shell.place() end)
  after_each(function() place.remove() end)

  -- What is in the home, the work folder and where the state is, so that leftovers are seen.
  local function listing()
    return place.run({ "sh", "-c", "cd " .. place.dir .. " && find . ! -name out ! -name err ! -name rc | sort" }).out
  end

  local function report(r)
    local value = assert(json.decode(r.out), r.out .. r.err)
    local by = {}
    for _, check in ipairs(value.checks) do by[check.topic .. "/" .. check.name] = check end
    return by, value
  end
  local function failures(value)
    local list = {}
    for _, check in ipairs(value.checks) do
      if check.state == "fail" then list[#list + 1] = check.topic .. "/" .. check.name end
    end
    return list
  end
  local BUILD = os.getenv "CREWBOX_BUILD"
  local function crewbox_words(words)
    return ("CREWBOX_LUA=%s %s %s"):format(jit and "luajit" or "lua5.4", shell.quoted(BUILD .. "/crewbox"), words)
  end
  -- An ordinary user of a namespace of its own, where a switch can be thrown.
  local function apart(script)
    return place.run { "unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "--mount", "sh", "-c", script }
  end

  it("finds this machine able, proves the walls, and leaves nothing behind", function()
    local before = listing()
    local r = place.crewbox { "doctor", "--json", env = { ANTHROPIC_API_KEY = "sk-ant-fake-of-nobody-at-all" } }
    local by, value = report(r)
    assert.are.same({}, failures(value))
    assert.are.equal(0, r.status)
    assert.is_true(value.works)
    assert.are.equal("", r.err)
    for _, name in ipairs { "isolation/user namespace", "isolation/mounts", "isolation/processes", "isolation/network",
      "isolation/privileges", "isolation/seccomp", "isolation/hidden /proc", "isolation/write outside", "network/forward",
      "network/resolver", "limits//tmp", "limits/open files", "state/writable", "programs/crewboxd", "tools/git" } do
      assert.are.equal("ok", by[name] and by[name].state, name)
    end
    for _, name in ipairs { "memory", "cpu", "disk" } do
      assert.are.equal("warn", by["limits/" .. name].state)
      assert.is_truthy(by["limits/" .. name].text:find "^absent: ")
    end
    for _, check in ipairs(value.checks) do
      assert.is_truthy(check.state == "ok" or check.fix or check.text:find "not checked" or check.text:find "cannot be told", check.text)
      assert.is_nil(check.text:find "\n")
    end
    assert.are.equal("ANTHROPIC_API_KEY set", by["agents/claude-code key"].text)
    assert.is_nil(r.out:find("sk-ant-fake", 1, true))
    assert.are.equal(before, listing())
    assert.are.same({}, place.processes())
  end)

  it("prints lines and their fixes, without colour off a terminal", function()
    local r = place.crewbox { "doctor", env = { CREWBOX_LIBEXEC = place.dir .. "/nowhere", TERM = "xterm" } }
    assert.are.equal(5, r.status)
    assert.is_nil(r.out:find("\27", 1, true))
    assert.is_truthy(r.out:find("\nprograms\n  FAIL  crewboxd: crewboxd is not in [^\n]+\n        fix: run `make`"), r.out)
    assert.is_truthy(r.out:find("\n        fix: crewbox agents install claude%-code\n"))
    assert.is_truthy(r.out:find("\nruns do not work here; %d+ ok, %d+ warn, %d+ FAIL\n$"))
    assert.are.equal("", r.err)
  end)

  it("says when programs are of another version", function()
    os.execute("mkdir " .. place.dir .. "/old")
    for _, name in ipairs { "crewboxd", "crewbox-init", "crewbox-supervise" } do
      shell.write(place.dir .. "/old/" .. name, "#!/bin/sh\necho " .. name .. " 0.0.1\n")
    end
    os.execute("chmod +x " .. place.dir .. "/old/*")
    local by = report(place.crewbox { "doctor", "--json", env = { CREWBOX_LIBEXEC = place.dir .. "/old" } })
    for _, name in ipairs { "crewboxd", "crewbox-init", "crewbox-supervise" } do
      assert.are.equal("fail", by["programs/" .. name].state)
      assert.is_truthy(by["programs/" .. name].text:find("is version 0.0.1, but crewbox is " .. core.version, 1, true))
    end
  end)

  it("says which switch keeps boxes from being made", function()
    local r = apart("echo 0 >/proc/sys/user/max_user_namespaces; " .. crewbox_words "doctor --json")
    local by, value = report(r)
    assert.are.equal(5, r.status)
    assert.is_false(value.works)
    assert.are.equal("fail", by["isolation/box"].state)
    assert.is_truthy(by["isolation/box"].fix:find("max_user_namespaces", 1, true), by["isolation/box"].text)
    assert.are.equal("sudo sysctl -w user.max_user_namespaces=15000", by["host/user namespaces"].fix)
    assert.is_truthy(by["limits/limits"].text:find "^not checked")
    assert.are.same({}, place.processes())
  end)

  it("says that a state folder on an overlay carries no box", function()
    local r = apart(("cd %s && mount -t tmpfs none work && mkdir work/l work/u work/w work/m && " ..
      "mount -t overlay o -o lowerdir=work/l,upperdir=work/u,workdir=work/w,userxattr work/m && CREWBOX_STATE=%s/work/m/s %s")
      :format(place.dir, place.dir, crewbox_words "doctor --json"))
    local by = report(r)
    assert.are.equal(5, r.status)
    assert.are.equal("fail", by["state/file system"].state)
    assert.is_truthy(by["state/file system"].text:find "^it is on overlay")
    assert.is_truthy(by["isolation/box"].fix:find("CREWBOX_STATE", 1, true), by["isolation/box"].text)
  end)

  it("says when the disk is full", function()
    local r = apart(("mkdir -p %s && mount -t tmpfs -o size=4m,mode=700 none %s && %s"):format(place.state, place.state,
      crewbox_words "doctor --json"))
    local by = report(r)
    assert.are.equal("fail", by["state/space"].state)
    assert.are.equal(5, r.status)
  end)

  it("says when the state folder is no place", function()
    local long = place.dir .. "/" .. ("x"):rep(100)
    local by = report(place.crewbox { "doctor", "--json", env = { CREWBOX_STATE = long } })
    assert.are.equal("fail", by["state/sockets"].state)
    assert.are.equal("ok", by["isolation/box"].state) -- the doctor's own socket lies elsewhere then
    assert.is_truthy(by["state/sockets"].text:find("the most is 107", 1, true))
    shell.write(place.dir .. "/file", "")
    by = report(place.crewbox { "doctor", "--json", env = { CREWBOX_STATE = place.dir .. "/file" } })
    assert.are.equal("fail", by["state/folder"].state)
  end)

  describe("looks at the store", function()
    it("that a run has used", function()
      local made = place.crewbox { "runs" }
      assert.are.equal(0, made.status, made.err)
      local before = shell.read(place.state .. "/crewbox.db")
      local by, value = report(place.crewbox { "doctor", "--json" })
      for _, name in ipairs { "database", "integrity", "schema", "writable" } do
        assert.are.equal("ok", by["store/" .. name].state, by["store/" .. name].text)
      end
      assert.are.same({}, failures(value))
      assert.are.equal(before, shell.read(place.state .. "/crewbox.db"))
    end)
    it("that is damaged", function()
      place.crewbox { "runs" }
      shell.write(place.state .. "/crewbox.db", ("no database "):rep(1000))
      local r = place.crewbox { "doctor", "--json" }
      local _, value = report(r)
      assert.is_truthy(table.concat(failures(value), " "):find "store/")
      assert.are.equal(5, r.status)
    end)
    it("that a newer crewbox wrote", function()
      place.crewbox { "runs" }
      local io = core.io()
      local loop = require("crewbox.async").new(io)
      local db = core.store(io, place.state .. "/crewbox.db")
      assert(loop:call(loop.await, loop, db:query "UPDATE meta SET value = '999' WHERE key = 'schema'"))
      db:close()
      io:close()
      local by = report(place.crewbox { "doctor", "--json" })
      assert.are.equal("fail", by["store/schema"].state)
      assert.is_truthy(by["store/schema"].text:find "^schema 999")
    end)
  end)

  describe("with boxes of E2B", function()
    local function with(yaml, env)
      shell.write(place.work .. "/crewbox.yaml", yaml)
      return place.crewbox { "doctor", "--json", env = env }
    end
    it("tells of the key by name, and of a domain left over", function()
      local r = with("providers: {sandbox: {type: e2b}}\n", { E2B_DOMAIN = "old.example.com" })
      local by = report(r)
      assert.are.equal(5, r.status)
      assert.are.equal("export E2B_API_KEY=...", by["provider/key"].fix)
      assert.are.equal("warn", by["provider/E2B_DOMAIN"].state)
      assert.is_truthy(by["isolation/box"].text:find "^not checked here")
    end)
    it("says when the server does not answer, never the key", function()
      local r = with("providers: {sandbox: {type: e2b, api_url: 'http://127.0.0.1:9'}}\n", { E2B_API_KEY = "e2b_fake_key_of_nobody" })
      local by = report(r)
      assert.are.equal("E2B_API_KEY is set", by["provider/key"].text)
      assert.are.equal("fail", by["provider/reachable"].state)
      assert.is_nil(r.out:find("e2b_fake", 1, true))
    end)
    it("asks a server that answers", function()
      local daemon = assert(core.sys.daemon { argv = { BUILD .. "/crewboxd", "--state", place.state .. "/boxd", "--listen", "127.0.0.1:0" },
        log = place.dir .. "/log", ready_timeout_ms = 20000 })
      local url = daemon.line:match "http://%S+"
      local yaml = ("providers: {sandbox: {type: e2b, api_url: '%s', sandbox_url: '%s'}}\n"):format(url, url)
      local key = shell.read(place.state .. "/boxd/key"):match "%S+"
      local by = report(with(yaml, { E2B_API_KEY = key }))
      local wrong = report(with(yaml, { E2B_API_KEY = "e2b_wrong_key" }))
      core.sys.kill(daemon.pid, "TERM")
      assert.are.equal("ok", by["provider/reachable"].state)
      assert.are.equal("ok", by["provider/key accepted"].state, by["provider/key accepted"].text)
      assert.are.equal("fail", wrong["provider/key accepted"].state)
    end)
  end)

  it("tries boxes of the server that the configuration names", function()
    local socket = place.state .. ".sock"
    local daemon = assert(core.sys.daemon { argv = { BUILD .. "/crewboxd", "--state", place.state .. "/other", "--socket", socket },
      log = place.dir .. "/log", ready_timeout_ms = 20000 })
    shell.write(place.work .. "/crewbox.yaml", ("providers: {sandbox: {socket: %s}}\n"):format(socket))
    local by, value = report(place.crewbox { "doctor", "--json" })
    local left = place.run { "sh", "-c", "ls " .. place.state .. "/other/boxes" }
    core.sys.kill(daemon.pid, "TERM")
    assert.are.same({}, failures(value))
    assert.are.equal("one can be made by the server at " .. socket, by["isolation/box"].text)
    assert.are.equal("ok", by["network/forward"].state)
    assert.are.equal("", left.out)
  end)

  it("says when that server is not there", function()
    shell.write(place.work .. "/crewbox.yaml", ("providers: {sandbox: {socket: %s/nobody.sock}}\n"):format(place.dir))
    local by, value = report(place.crewbox { "doctor", "--json" })
    assert.is_false(value.works)
    assert.is_truthy(by["provider/box server"].text:find "^no crewboxd answers at")
  end)

  it("tells a wrong configuration as what it is", function()
    shell.write(place.work .. "/crewbox.yaml", "providers: {sandbox: {tempalte: x}}\n")
    local r = place.crewbox { "doctor", "--json" }
    local by = report(r)
    assert.are.equal(5, r.status)
    assert.is_truthy(by["provider/configuration"].text:find("did you mean template?", 1, true))
  end)

  it("tells of a configuration in the current folder that does not count", function()
    shell.write(place.work .. "/crewbox.yaml", "providers: {sandbox: {type: e2b}}\n")
    local by = report(place.crewbox { "doctor", "--json", env = { CREWBOX_CONFIG = "" } })
    assert.are.equal("warn", by["provider/configuration"].state)
    assert.are.equal("ok", by["isolation/box"].state)
  end)

  it("takes everything away when it is interrupted", function()
    local before = listing()
    local r = place.run { "sh", "-c", ("exec 3>&1; (exec env %s >/dev/null 2>&3) & p=$!; i=0; " ..
      "while [ $i -lt 400 ] && ! ls -d %s/.crewbox-doctor-*/owner >/dev/null 2>&1; do sleep 0.02; i=$((i+1)); done; " ..
      "kill -TERM $p; wait $p; echo rc $?"):format(crewbox_words "doctor", place.dir) }
    assert.are.equal("crewbox: interrupted\nrc 130\n", r.out, r.err)
    assert.are.equal(before, listing())
    assert.are.same({}, place.processes())
  end)

  it("removes what a doctor that was killed has left", function()
    local before = listing()
    place.run { "sh", "-c", ("(exec env %s >/dev/null 2>&1) & p=$!; i=0; " ..
      "while [ $i -lt 400 ] && ! grep -qs daemon_start %s/.crewbox-doctor-*/owner; do sleep 0.02; i=$((i+1)); done; " ..
      "kill -KILL $p; wait $p"):format(crewbox_words "doctor", place.dir) }
    local r = place.crewbox { "doctor", "--json" }
    assert.are.equal(0, r.status, r.out .. r.err)
    assert.are.equal(before, listing())
    assert.are.same({}, place.processes())
  end)
end)

describe("a topic that is defective", function()
  it("is told, and the others go on", function()
    package.loaded["crewbox.doctor.of_spec"] = { name = "of_spec", run = function() error "oh" end }
    local before = doctor.TOPICS
    doctor.TOPICS = { "of_spec", "host" }
    local async = require "crewbox.async"
    local io = core.io()
    local loop = async.new(io)
    local ctx = doctor.context { loop = loop, environ = { CREWBOX_STATE = "/nonexistent/s" } }
    local report = loop:call(doctor.run, ctx)
    doctor.TOPICS, package.loaded["crewbox.doctor.of_spec"] = before, nil
    io:close()
    assert.is_false(report.works)
    assert.are.equal("of_spec", report.checks[1].topic)
    assert.is_truthy(report.checks[1].text:find "oh")
    assert.are.equal("host", report.checks[2].topic)
  end)
end)
