#!/usr/bin/env node
// A scripted model endpoint for tests. No dependencies, Node 18 or later.
//
//   node model-server.mjs --port 0 --script fix.json --log requests.jsonl
//
// Prints one line on stdout when it listens:
//   model-server ready http://127.0.0.1:PORT
//
// Speaks, under any path prefix (see "sessions"):
//   Anthropic   POST …/v1/messages (SSE and plain), POST …/v1/messages/count_tokens
//   OpenAI      POST …/chat/completions (SSE and plain), POST …/responses (SSE and plain)
//   both        GET  …/models, HEAD/GET anything else (200/404)
//
// Options
//   --port N          0 picks a free one (default 0)        --host H   default 127.0.0.1
//   --script FILE     the script (below); default: one turn that says "ok"
//   --log FILE        one JSON line per request (see logRequest); "-" is stderr
//   --bodies          put whole request bodies in the log, not only a digest
//
// Script (JSON)
//   {
//     "require_key": "sk-test",       // optional: any other key gets a 401
//     "side": "a title",              // answer to requests that offer no tools (titles, topics)
//     "turns": [ TURN, TURN, ... ],   // used in order, one per request that offers tools
//     "after": TURN,                  // used once the turns are spent (default: text "done")
//     "sessions": { "NAME": {turns…} }// a script per path prefix: http://host:port/NAME/v1/messages
//   }
//   Each path prefix has its own cursor. A prefix without a script of its own uses the top one.
// TURN
//   { "text": "words to say",
//     "thinking": "reasoning words",           // optional
//     "bash": "shell command",                 // becomes whichever shell tool the client offers
//     "write": {"path": "...", "content": "..."}, // ditto for its write tool (else a shell command)
//     "read": "path",                          // ditto for its read tool (else cat)
//     "tool": {"name": "X", "input": {...}},   // an exact call
//     "tools": [ {bash|write|read|tool}, ... ],// several calls in one turn
//     "usage": {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4},
//     "stop": "max_tokens",                    // overrides the stop reason (Anthropic words)
//     "delay_ms": 100,                         // before the first byte
//     "chunk_ms": 20,                          // between stream events
//     "fault": FAULT, "times": 1 }             // times: how often this turn repeats; "forever"
// FAULT
//   {"status": 429, "type": "rate_limit_error", "message": "slow down", "headers": {"retry-after": "1"}}
//   {"kind": "hang"}            accept the request, never answer
//   {"kind": "stall"}           start the stream, then never finish it
//   {"kind": "truncate"}        start the stream, then close it cleanly half way
//   {"kind": "reset"}           start the stream, then reset the connection
//   {"kind": "stream_error", "type": "overloaded_error", "message": "…"}  error event inside a 200 stream
//   {"kind": "garbage"}         200 with a body that is not JSON
//
// Control, for tests: GET /__/state, POST /__/script (JSON body replaces the script and resets
// every cursor), POST /__/reset.

import http from 'node:http';
import fs from 'node:fs';
import zlib from 'node:zlib';

const argv = process.argv.slice(2);
const opt = (name, dflt) => {
  const i = argv.indexOf('--' + name);
  return i < 0 ? dflt : argv[i + 1];
};
const host = opt('host', '127.0.0.1');
const port = Number(opt('port', '0'));
const logFile = opt('log');
const wholeBodies = argv.includes('--bodies');
const scriptFile = opt('script');

let script = scriptFile ? JSON.parse(fs.readFileSync(scriptFile, 'utf8')) : { turns: [{ text: 'ok' }] };
let cursors = new Map(); // prefix -> {turn, used}
let serial = 0;

const logLine = (o) => {
  if (!logFile) return;
  const line = JSON.stringify(o) + '\n';
  if (logFile === '-') process.stderr.write(line);
  else fs.appendFileSync(logFile, line);
};

const mask = (v) => (v && v.length > 14 ? v.slice(0, 14) + '…' : v);

// ---- choosing the turn ------------------------------------------------------------------------

function scriptFor(prefix) {
  const s = script.sessions && script.sessions[prefix];
  return s ? { ...script, ...s } : script;
}

function nextTurn(prefix) {
  const s = scriptFor(prefix);
  const turns = s.turns || [];
  const c = cursors.get(prefix) || { turn: 0, used: 0 };
  cursors.set(prefix, c);
  if (c.turn >= turns.length) return { turn: s.after || { text: 'done' }, index: -1 };
  const turn = turns[c.turn];
  const index = c.turn;
  c.used++;
  const times = turn.times === 'forever' ? Infinity : turn.times || 1;
  if (c.used >= times) { c.turn++; c.used = 0; }
  return { turn, index };
}

// ---- turning "bash"/"write"/"read" into the client's own tools ----------------------------------

// Normalises the three tool-list shapes to {name, schema, freeform}.
function toolList(body) {
  return (body.tools || []).flatMap((t) => {
    if (t.type === 'function' && t.function) return [{ name: t.function.name, schema: t.function.parameters || {} }];
    if (t.type === 'function') return [{ name: t.name, schema: t.parameters || {} }];
    if (t.type === 'custom') return [{ name: t.name, schema: {}, freeform: true }];
    if (t.input_schema) return [{ name: t.name, schema: t.input_schema }];
    if (t.type === 'namespace') return (t.tools || []).map((x) => ({ name: x.name, namespace: t.name, schema: x.parameters || {} }));
    return t.name ? [{ name: t.name, schema: {} }] : [];
  });
}

const find = (tools, names) => names.map((n) => tools.find((t) => t.name === n)).find(Boolean);

// Fills required string properties that the script did not give.
function complete(tool, input) {
  const props = tool.schema.properties || {};
  for (const r of tool.schema.required || []) {
    if (r in input) continue;
    const ty = props[r] && props[r].type;
    input[r] = ty === 'number' || ty === 'integer' ? 60000 : ty === 'boolean' ? false : ty === 'array' ? [] : 'scripted call';
  }
  return input;
}

function shellCall(tools, command) {
  const t = find(tools, ['Bash', 'bash', 'shell_command', 'exec_command', 'shell', 'local_shell', 'container.exec', 'exec']);
  if (!t) return { name: 'bash', input: { command } };
  const props = t.schema.properties || {};
  if (t.freeform) return { name: t.name, freeform: true, text: `text(await tools.exec_command({cmd: ${JSON.stringify(command)}}))` };
  if (props.cmd) return { name: t.name, namespace: t.namespace, input: complete(t, { cmd: command }) };
  const c = props.command || {};
  return { name: t.name, namespace: t.namespace, input: complete(t, { command: c.type === 'array' ? ['bash', '-lc', command] : command }) };
}

function call(tools, spec) {
  if (spec.bash !== undefined) return shellCall(tools, spec.bash);
  if (spec.write) {
    const t = find(tools, ['Write', 'write', 'write_file']);
    if (!t) {
      const b64 = Buffer.from(spec.write.content).toString('base64');
      return shellCall(tools, `printf %s ${b64} | base64 -d > '${spec.write.path}'`);
    }
    const p = Object.keys(t.schema.properties || {}).find((k) => /^(file_?path|path)$/i.test(k)) || 'path';
    return { name: t.name, input: complete(t, { [p]: spec.write.path, content: spec.write.content }) };
  }
  if (spec.read !== undefined) {
    const t = find(tools, ['Read', 'read', 'read_file']);
    if (!t) return shellCall(tools, `cat '${spec.read}'`);
    const p = Object.keys(t.schema.properties || {}).find((k) => /^(file_?path|path)$/i.test(k)) || 'path';
    return { name: t.name, input: complete(t, { [p]: spec.read }) };
  }
  const t = tools.find((x) => x.name === spec.tool.name);
  return { name: spec.tool.name, namespace: t && t.namespace, input: spec.tool.input || {} };
}

function plan(turn, body, n) {
  const tools = toolList(body);
  const specs = turn.tools || (turn.bash !== undefined || turn.write || turn.read !== undefined || turn.tool ? [turn] : []);
  const calls = specs.map((s, i) => ({ ...call(tools, s), id: `call_${n}_${i}` }));
  const u = turn.usage || {};
  const usage = {
    input: u.input ?? Math.max(1, Math.round(JSON.stringify(body).length / 4)),
    output: u.output ?? 20,
    cache_read: u.cache_read ?? 0,
    cache_write: u.cache_write ?? 0,
  };
  return { n, text: turn.text || '', thinking: turn.thinking || '', calls, usage, stop: turn.stop || (calls.length ? 'tool_use' : 'end_turn') };
}

// ---- the three wire formats -----------------------------------------------------------------------
// Each returns {events: [[name|null, object], …], plain: object}.

function anthropic(p, body) {
  const id = `msg_${p.n}`;
  const usage = { input_tokens: p.usage.input, output_tokens: p.usage.output, cache_read_input_tokens: p.usage.cache_read, cache_creation_input_tokens: p.usage.cache_write };
  const content = [];
  if (p.thinking) content.push({ type: 'thinking', thinking: p.thinking, signature: 'c2ln' });
  if (p.text) content.push({ type: 'text', text: p.text });
  for (const c of p.calls) content.push({ type: 'tool_use', id: 'toolu_' + c.id, name: c.name, input: c.input });
  const base = { id, type: 'message', role: 'assistant', model: body.model, stop_sequence: null };
  const ev = [['message_start', { type: 'message_start', message: { ...base, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } } }], ['ping', { type: 'ping' }]];
  content.forEach((b, index) => {
    const start = b.type === 'tool_use' ? { ...b, input: {} } : b.type === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' };
    ev.push(['content_block_start', { type: 'content_block_start', index, content_block: start }]);
    const d = (delta) => ev.push(['content_block_delta', { type: 'content_block_delta', index, delta }]);
    if (b.type === 'text') for (const part of split(b.text)) d({ type: 'text_delta', text: part });
    if (b.type === 'tool_use') for (const part of split(JSON.stringify(b.input))) d({ type: 'input_json_delta', partial_json: part });
    if (b.type === 'thinking') { d({ type: 'thinking_delta', thinking: b.thinking }); d({ type: 'signature_delta', signature: b.signature }); }
    ev.push(['content_block_stop', { type: 'content_block_stop', index }]);
  });
  ev.push(['message_delta', { type: 'message_delta', delta: { stop_reason: p.stop, stop_sequence: null }, usage: { output_tokens: p.usage.output } }]);
  ev.push(['message_stop', { type: 'message_stop' }]);
  return { events: ev, plain: { ...base, content, stop_reason: p.stop, usage } };
}

function chat(p, body) {
  const created = Math.floor(Date.now() / 1000);
  const base = { id: `chatcmpl-${p.n}`, created, model: body.model };
  const finish = { tool_use: 'tool_calls', end_turn: 'stop', max_tokens: 'length', refusal: 'content_filter' }[p.stop] || p.stop;
  const input = p.usage.input + p.usage.cache_read;
  const usage = { prompt_tokens: input, completion_tokens: p.usage.output, total_tokens: input + p.usage.output, prompt_tokens_details: { cached_tokens: p.usage.cache_read }, completion_tokens_details: { reasoning_tokens: 0 } };
  const tool_calls = p.calls.map((c, index) => ({ index, id: c.id, type: 'function', function: { name: c.name, arguments: JSON.stringify(c.input) } }));
  const ev = [];
  const chunk = (delta, finish_reason = null) => ev.push([null, { ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] }]);
  chunk({ role: 'assistant', content: '' });
  if (p.thinking) chunk({ reasoning_content: p.thinking });
  for (const part of split(p.text)) chunk({ content: part });
  for (const t of tool_calls) {
    chunk({ tool_calls: [{ ...t, function: { name: t.function.name, arguments: '' } }] });
    for (const part of split(t.function.arguments)) chunk({ tool_calls: [{ index: t.index, function: { arguments: part } }] });
  }
  chunk({}, finish);
  if (!body.stream_options || body.stream_options.include_usage) ev.push([null, { ...base, object: 'chat.completion.chunk', choices: [], usage }]);
  ev.push([null, '[DONE]']);
  const message = { role: 'assistant', content: p.text || null };
  if (tool_calls.length) message.tool_calls = tool_calls.map(({ index, ...t }) => t);
  return { events: ev, plain: { ...base, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: finish }], usage } };
}

function responses(p, body) {
  const id = `resp_${p.n}`;
  const usage = { input_tokens: p.usage.input + p.usage.cache_read, input_tokens_details: { cached_tokens: p.usage.cache_read }, output_tokens: p.usage.output, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: p.usage.input + p.usage.cache_read + p.usage.output };
  const output = [];
  if (p.thinking) output.push({ type: 'reasoning', id: `rs_${p.n}`, summary: [{ type: 'summary_text', text: p.thinking }] });
  if (p.text) output.push({ type: 'message', id: `item_${p.n}`, role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: p.text, annotations: [] }] });
  for (const c of p.calls) {
    output.push(c.freeform
      ? { type: 'custom_tool_call', id: 'ctc_' + c.id, call_id: c.id, name: c.name, input: c.text, status: 'completed' }
      : { type: 'function_call', id: 'fc_' + c.id, call_id: c.id, name: c.name, ...(c.namespace ? { namespace: c.namespace } : {}), arguments: JSON.stringify(c.input), status: 'completed' });
  }
  const incomplete = p.stop === 'max_tokens';
  const resp = (status, more) => ({ id, object: 'response', created_at: Math.floor(Date.now() / 1000), model: body.model, status, output: [], error: null, incomplete_details: null, ...more });
  const ev = [];
  let n = 0;
  const e = (type, o) => ev.push([type, { type, sequence_number: n++, ...o }]);
  e('response.created', { response: resp('in_progress') });
  e('response.in_progress', { response: resp('in_progress') });
  output.forEach((item, output_index) => {
    const open = { ...item, status: 'in_progress' };
    if (item.type === 'message') open.content = [];
    if (item.type === 'function_call') open.arguments = '';
    e('response.output_item.added', { output_index, item: open });
    if (item.type === 'message') {
      const at = { item_id: item.id, output_index, content_index: 0 };
      e('response.content_part.added', { ...at, part: { type: 'output_text', text: '', annotations: [] } });
      for (const part of split(p.text)) e('response.output_text.delta', { ...at, delta: part });
      e('response.output_text.done', { ...at, text: p.text });
      e('response.content_part.done', { ...at, part: item.content[0] });
    }
    if (item.type === 'function_call') {
      const at = { item_id: item.id, output_index };
      for (const part of split(item.arguments)) e('response.function_call_arguments.delta', { ...at, delta: part });
      e('response.function_call_arguments.done', { ...at, arguments: item.arguments });
    }
    e('response.output_item.done', { output_index, item });
  });
  const final = resp(incomplete ? 'incomplete' : 'completed', { output, usage, incomplete_details: incomplete ? { reason: 'max_output_tokens' } : null });
  e(incomplete ? 'response.incomplete' : 'response.completed', { response: final });
  return { events: ev, plain: final };
}

// Two or three pieces, so that clients really have to join deltas.
function split(s) {
  if (!s) return [];
  const n = Math.ceil(s.length / 3);
  return [s.slice(0, n), s.slice(n, 2 * n), s.slice(2 * n)].filter(Boolean);
}

// ---- replies ----------------------------------------------------------------------------------------

function errorBody(kind, f, n = serial) {
  const type = f.type || { 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error', 429: 'rate_limit_error', 500: 'api_error', 529: 'overloaded_error' }[f.status] || 'invalid_request_error';
  const message = f.message || `scripted ${f.status || 'error'}`;
  return kind === 'anthropic' ? { type: 'error', error: { type, message }, request_id: `req_${n}` } : { error: { message, type, code: f.code || type, param: null } };
}

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

async function reply(req, res, kind, body, turn, n) {
  if (turn.delay_ms) await sleep(turn.delay_ms);
  const f = turn.fault;
  if (f && f.kind === 'hang') return 'hang';
  if (f && f.kind === 'garbage') { res.writeHead(200, { 'content-type': 'application/json' }); res.end('<html>not json'); return 'garbage'; }
  if (f && !f.kind) {
    res.writeHead(f.status, { 'content-type': 'application/json', 'request-id': `req_${n}`, ...f.headers });
    res.end(JSON.stringify(errorBody(kind, f, n)));
    return `status ${f.status}`;
  }
  const p = plan(turn, body, n);
  const made = { anthropic, chat, responses }[kind](p, body);
  if (!body.stream) {
    const whole = JSON.stringify(made.plain);
    if (f && f.kind === 'reset') { res.destroy(); return 'reset'; }
    if (f && f.kind === 'stall') { res.writeHead(200, { 'content-type': 'application/json' }); res.write(whole.slice(0, whole.length / 2)); return 'stall'; }
    if (f && f.kind === 'stream_error') { res.writeHead(529, { 'content-type': 'application/json' }); res.end(JSON.stringify(errorBody(kind, f, n))); return 'stream_error'; }
    if (f && f.kind === 'truncate') {
      res.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(whole) });
      res.write(whole.slice(0, whole.length / 2));
      await sleep(20);
      res.destroy();
      return 'truncate';
    }
    res.writeHead(200, { 'content-type': 'application/json', 'request-id': `req_${n}` });
    res.end(whole);
    return 'plain';
  }
  res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache', 'request-id': `req_${n}` });
  const half = Math.max(2, Math.floor(made.events.length / 2));
  const events = f ? made.events.slice(0, half) : made.events;
  for (const [name, data] of events) {
    res.write((name ? `event: ${name}\n` : '') + `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
    if (turn.chunk_ms) await sleep(turn.chunk_ms);
  }
  if (f && f.kind === 'stall') return 'stall';
  if (f && f.kind === 'reset') { await sleep(50); (res.socket.resetAndDestroy || res.socket.destroy).call(res.socket); return 'reset'; }
  if (f && f.kind === 'stream_error') {
    const b = errorBody(kind, f, n);
    if (kind === 'anthropic') res.write(`event: error\ndata: ${JSON.stringify(b)}\n\n`);
    else if (kind === 'responses') res.write(`event: response.failed\ndata: ${JSON.stringify({ type: 'response.failed', response: { id: `resp_${n}`, status: 'failed', error: { code: b.error.code, message: b.error.message } } })}\n\n`);
    else res.write(`data: ${JSON.stringify(b)}\n\n`);
  }
  res.end();
  return f ? f.kind : 'stream';
}

// ---- the server -------------------------------------------------------------------------------------

const roles = (body) => (body.messages || body.input || []);
function lastText(body) {
  if (typeof body.input === 'string') return body.input.slice(0, 200);
  const list = roles(body);
  const m = list[list.length - 1] || {};
  const c = m.content ?? m.output;
  const s = typeof c === 'string' ? c : JSON.stringify(c ?? m);
  return s.length > 400 ? s.slice(0, 400) + '…' : s;
}

function logRequest(n, req, url, prefix, body, extra) {
  const h = req.headers;
  const keep = {};
  for (const k of ['user-agent', 'anthropic-version', 'anthropic-beta', 'content-type', 'traceparent', 'tracestate', 'originator', 'session_id', 'session-id', 'x-session-affinity', 'x-app', 'x-stainless-retry-count', 'x-claude-code-session-id']) if (h[k]) keep[k] = h[k];
  if (h['x-api-key']) keep['x-api-key'] = mask(h['x-api-key']);
  if (h.authorization) keep.authorization = mask(h.authorization);
  logLine({
    t: new Date().toISOString(), n, method: req.method, path: url.pathname + url.search, prefix, headers: keep,
    ...(body ? { model: body.model, stream: !!body.stream, items: Array.isArray(roles(body)) ? roles(body).length : 1, tools: toolList(body).map((t) => t.name), last: lastText(body), max_tokens: body.max_tokens ?? body.max_output_tokens } : {}),
    ...(wholeBodies && body ? { body } : {}), ...extra,
  });
}

const ROUTES = [
  [/^(.*?)\/(?:v1\/)?messages\/count_tokens$/, 'count'],
  [/^(.*?)\/(?:v1\/)?messages$/, 'anthropic'],
  [/^(.*?)\/(?:v1\/)?chat\/completions$/, 'chat'],
  [/^(.*?)\/(?:v1\/)?responses$/, 'responses'],
  [/^(.*?)\/(?:v1\/)?models(?:\/[^/]+)?$/, 'models'],
];

// Some clients compress what they send (zstd needs Node 22.15).
function decode(buf, how) {
  const fn = { gzip: zlib.gunzipSync, deflate: zlib.inflateSync, br: zlib.brotliDecompressSync, zstd: zlib.zstdDecompressSync }[how];
  try { return fn && buf.length ? fn(buf) : buf; } catch { return buf; }
}

const json = (res, status, o) => { const b = JSON.stringify(o); res.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(b) }); res.end(b); };

const server = http.createServer(async (req, res) => {
  const my = ++serial; // this request's number; others arrive while we wait
  const url = new URL(req.url, 'http://x');
  const chunks = [];
  for await (const c of req) chunks.push(c);
  const t0 = Date.now();
  const raw = decode(Buffer.concat(chunks), req.headers['content-encoding']).toString('utf8');

  if (url.pathname.startsWith('/__/')) {
    if (url.pathname === '/__/script' && req.method === 'POST') { script = JSON.parse(raw); cursors = new Map(); return json(res, 200, { ok: true }); }
    if (url.pathname === '/__/reset') { cursors = new Map(); return json(res, 200, { ok: true }); }
    return json(res, 200, { requests: serial, cursors: Object.fromEntries(cursors) });
  }

  let body;
  try { body = raw ? JSON.parse(raw) : undefined; } catch { body = undefined; }
  const hit = ROUTES.map(([re, kind]) => ({ m: re.exec(url.pathname), kind })).find((x) => x.m);
  if (!hit) {
    logRequest(my, req, url, '', undefined, { reply: 404, raw: raw.slice(0, 200) });
    return req.method === 'HEAD' ? (res.writeHead(200), res.end()) : json(res, 404, { error: { type: 'not_found_error', message: 'no such path' } });
  }
  const prefix = hit.m[1].replace(/^\//, '');
  const s = scriptFor(prefix);
  const key = req.headers['x-api-key'] || (req.headers.authorization || '').replace(/^Bearer /i, '');
  if (hit.kind === 'models') {
    logRequest(my, req, url, prefix, undefined, { reply: 'models' });
    const ids = s.models || ['scripted-model'];
    return json(res, 200, { object: 'list', has_more: false, data: ids.map((id) => ({ id, object: 'model', type: 'model', display_name: id, created: 0, created_at: '2026-01-01T00:00:00Z', owned_by: 'test' })), models: [] });
  }
  if (req.method !== 'POST') { // among others the WebSocket upgrade that codex's built-in provider tries
    logRequest(my, req, url, prefix, undefined, { reply: 405, upgrade: req.headers.upgrade });
    return json(res, 405, errorBody(hit.kind, { status: 405, message: 'POST only' }));
  }
  if (!body) { logRequest(my, req, url, prefix, undefined, { reply: 400, raw: raw.slice(0, 200) }); return json(res, 400, errorBody(hit.kind, { status: 400, message: 'body is not JSON' })); }
  if (s.require_key && key !== s.require_key) {
    logRequest(my, req, url, prefix, body, { reply: 401 });
    return json(res, 401, errorBody(hit.kind, { status: 401, message: 'invalid x-api-key' }));
  }
  if (hit.kind === 'count') {
    logRequest(my, req, url, prefix, body, { reply: 'count' });
    return json(res, 200, { input_tokens: Math.round(raw.length / 4) });
  }
  // A request that offers no tools is a side request (title, topic, summary): it takes no turn.
  const side = !(body.tools && body.tools.length) && s.side !== false;
  const { turn, index } = side ? { turn: { text: typeof s.side === 'string' ? s.side : 'Scripted title' }, index: 'side' } : nextTurn(prefix);
  res.on('close', () => { if (!res.writableFinished) logLine({ t: new Date().toISOString(), n: my, closed_by_client_after_ms: Date.now() - t0 }); });
  logRequest(my, req, url, prefix, body, { turn: index });
  try {
    const how = await reply(req, res, hit.kind, body, turn, my);
    logLine({ t: new Date().toISOString(), n: my, reply: how, ms: Date.now() - t0 });
  } catch (err) {
    logLine({ t: new Date().toISOString(), n: my, error: String(err) });
    res.destroy();
  }
});
server.keepAliveTimeout = 60000;
server.requestTimeout = 0;
server.listen(port, host, () => process.stdout.write(`model-server ready http://${host}:${server.address().port}\n`));
for (const sig of ['SIGTERM', 'SIGINT']) process.on(sig, () => process.exit(0));
