// SPDX-License-Identifier: MIT
// One process that looks at COUNT boxes with the e2b SDK, for bench/fleet.lua: `fleet_e2b.mjs COUNT
// URL STEADY_S TICKS`. A tick reads the state file of every box at the same instant; the stretch
// after that reads each every 15 s, spread evenly.
import { Sandbox } from 'e2b'

const [count, url, steady, ticks] = [+process.argv[2], process.argv[3], +process.argv[4], +process.argv[5]]
const WARM_TICKS = 5, INTERVAL_MS = 15_000
const options = { apiUrl: url, sandboxUrl: url, apiKey: 'bench', validateApiKey: false, requestTimeoutMs: 0 }
const path = i => `/home/user/.crewbox/runs/r${String(i).padStart(12, '0')}/state`
const boxes = []
const connect = async i => boxes.push(await Sandbox.connect('i' + String(i).padStart(9, '0'), options))
for (let i = 0; i < 64; i++) await connect(i)
await Promise.all(boxes.map((b, i) => b.files.read(path(i))))
globalThis.gc?.()
const before = process.memoryUsage().rss
for (let i = 64; i < count; i++) await connect(i)

const late = [], cpuTick = []
for (let tick = 1; tick <= WARM_TICKS + ticks; tick++) {
  const at = performance.now(), cpu = process.cpuUsage()
  const now = await Promise.all(boxes.map((b, i) => b.files.read(path(i)).then(() => performance.now() - at)))
  const used = process.cpuUsage(cpu)
  if (tick <= WARM_TICKS) continue
  late.push(...now)
  cpuTick.push((used.user + used.system) / 1000)
}
globalThis.gc?.()
const kb = (process.memoryUsage().rss - before) / 1024 / (count - 64)
const quantile = (list, part) => list.sort((a, b) => a - b)[Math.max(0, Math.ceil(list.length * part) - 1)]

const timers = boxes.map((b, i) => setTimeout(() => {
  const poll = () => b.files.read(path(i))
  poll()
  timers[i] = setInterval(poll, INTERVAL_MS)
}, INTERVAL_MS * i / count))
const sleep = ms => new Promise(done => setTimeout(done, ms))
await sleep(1000)
const cpu = process.cpuUsage(), at = performance.now()
await sleep(steady * 1000)
const used = process.cpuUsage(cpu)
const share = (used.user + used.system) / 1000 / (performance.now() - at) * 100
timers.forEach(clearTimeout)
console.log(`kb=${kb.toFixed(2)} p50=${quantile(late, 0.5).toFixed(1)} p99=${quantile(late, 0.99).toFixed(1)} ` +
  `most=${quantile(late, 1).toFixed(1)} cpu_tick=${quantile(cpuTick, 0.5).toFixed(2)} share=${share.toFixed(3)}`)
process.exit(0)
