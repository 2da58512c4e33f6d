// SPDX-License-Identifier: MIT
// One process that polls with the e2b SDK, for bench/poll.lua: `poll_e2b.mjs MODE IN_FLIGHT SECONDS
// URL`. Modes: isRunning, setTimeout, read (files.read of a run's state). Prints what
// poll_crewbox.lua prints. The warm-up is longer: V8 compiles during the first seconds.
import { Sandbox } from 'e2b'

const [mode, inFlight, seconds, url] = [process.argv[2], +process.argv[3], +process.argv[4], process.argv[5]]
const WARM_S = 3
const options = { apiUrl: url, sandboxUrl: url, apiKey: 'bench', validateApiKey: false, requestTimeoutMs: 0 }
const boxes = []
for (let i = 0; i < 100; i++) boxes.push(await Sandbox.connect('i' + String(i).padStart(9, '0'), options))
const calls = {
  isRunning: b => b.isRunning(),
  setTimeout: b => b.setTimeout(900_000),
  read: b => b.files.read('/home/user/.crewbox/runs/r000000000000/state'),
}
const call = calls[mode]
let polls = 0, over = false
async function lane(i) {
  for (let n = i; !over; n += inFlight) {
    await call(boxes[n % boxes.length])
    polls++
  }
}
const lanes = []
for (let i = 0; i < inFlight; i++) lanes.push(lane(i))
const sleep = ms => new Promise(done => setTimeout(done, ms))
await sleep(WARM_S * 1000)
const before = { polls, cpu: process.cpuUsage(), at: performance.now() }
await sleep(seconds * 1000)
const used = process.cpuUsage(before.cpu)
const wall = (performance.now() - before.at) / 1000
console.log(`polls=${polls - before.polls} seconds=${wall.toFixed(3)} cpu=${((used.user + used.system) / 1e6).toFixed(3)} ` +
  `rss_kb=${process.resourceUsage().maxRSS}`)
over = true
await Promise.all(lanes)
process.exit(0)
