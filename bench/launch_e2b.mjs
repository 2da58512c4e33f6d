// SPDX-License-Identifier: MIT
// The way of a run up to its agent, written with the e2b SDK as its documentation shows it, for
// bench/launch.lua: `launch_e2b.mjs ROUNDS URL KEY REPO`. Create a sandbox, write brief and files
// (one call), commit them as the base to compare with, start the agent in the background. Prints
// for each round the milliseconds from the call until the agent, by its own clock, ran; a line
// "started" comes when the SDK has said so, and the next round begins with a line of input.
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Sandbox } from 'e2b'

const [rounds, url, key, repo] = [+process.argv[2], process.argv[3], process.argv[4], process.argv[5]]
const options = { apiUrl: url, sandboxUrl: url, apiKey: key, validateApiKey: false }
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

function files(folder, below = '') {
  return readdirSync(folder).filter(name => name !== '.git').flatMap(name => {
    const path = `${folder}/${name}`, to = `${below}/${name}`
    return statSync(path).isDirectory() ? files(path, to) : [{ path: `/home/user/project${to}`, data: readFileSync(path).buffer }]
  })
}

const base = 'cd ~/project && git init -q -b main && git add -A && ' +
  'git -c user.name=base -c user.email=base@localhost commit -q -m base'
for (let i = 0; i < rounds; i++) {
  await lines.next()
  const at = Date.now()
  const box = await Sandbox.create({ ...options, timeoutMs: 900_000, metadata: { bench: 'launch' } })
  await box.files.write([{ path: '/home/user/brief', data: 'date +%s%N\n' }, ...files(repo)])
  await box.commands.run(base, { timeoutMs: 60_000 })
  let said
  const first = new Promise(done => { said = done })
  const agent = await box.commands.run('exec sh ~/brief', { background: true, timeoutMs: 0, cwd: '/home/user/project', onStdout: said })
  console.log('started')
  await lines.next()
  const began = Number(await first) / 1e6
  await agent.wait()
  await box.kill()
  console.log(`ms=${(began - at).toFixed(1)}`)
}
process.exit(0)
