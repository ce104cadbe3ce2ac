#!/usr/bin/env node
// Holds a trace against what Perfetto's own trace processor reads of it: the WebAssembly of its web page, run in Node.
//
//     node ci/trace_processor.js FOLDER TRACE              check; the folder has engine_bundle.js and trace_processor.wasm
//     node ci/trace_processor.js FOLDER TRACE --sql QUERY  rows of a query
//
// A trace is wrong if an error or a loss was counted, if slices, counters or flows are fewer or more than in the file, or if
// a thread does not have the name and the slices that it has there. Ends with 1 and a list then.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

// Fields of Perfetto's TraceProcessorRpc (protos/perfetto/trace_processor/trace_processor.proto).
const STREAM_MESSAGE = 1;
const RPC = { sequence: 1, request: 2, append: 101, query: 103, appended: 201, answer: 203 };
const APPEND = 1;
const FINALIZE = 2;
const QUERY = 3;
const CELL = { null: 1, integer: 2, float: 3, text: 4 };
const PIECE = 8 << 20;
const READY_MS = 60_000;

// Protocol buffers, as little of them as it takes.
function varint(number) {
  const bytes = [];
  let rest = BigInt(number);
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
  } while (rest);
  return Buffer.from(bytes);
}

const integerField = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytesField = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);

function* varints(bytes) {
  let shift = 0n;
  let value = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (!(byte & 128)) {
      yield BigInt.asIntN(64, value);
      shift = value = 0n;
    }
  }
}

function* fields(bytes) {
  let at = 0;
  const read = () => {
    const from = at;
    while (bytes[at++] & 128);
    return Number(BigInt.asUintN(64, varints(bytes.subarray(from, at)).next().value));
  };
  while (at < bytes.length) {
    const key = read();
    const [field, wire] = [key >> 3, key & 7];
    if (wire === 0) {
      yield [field, read()];
      continue;
    }
    const length = wire === 2 ? read() : wire === 1 ? 8 : 4;
    yield [field, bytes.subarray(at, at + length)];
    at += length;
  }
}

const fieldOf = (message, wanted) => [...fields(message)].find(([field]) => field === wanted)?.[1];

// The engine expects to be a worker of a page: it fetches its WebAssembly, and is handed a port to speak over.
async function engine(folder) {
  const quiet = () => {};
  class Request {
    open(_, url) {
      this.url = url;
    }
    send() {
      const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
      Object.assign(this, { status: 200, response: new Uint8Array(bytes).buffer });
      this.onload?.();
    }
  }
  const worker = { self: globalThis, XMLHttpRequest: Request, WorkerGlobalScope: quiet, importScripts: quiet };
  worker.location = { href: "http://localhost/engine_bundle.js" };
  Object.assign(globalThis, worker);
  console.warn = quiet;
  // Where there is a process the bundle takes itself to be in Node, for which it was not built.
  Object.defineProperty(globalThis, "process", { value: undefined, configurable: true, writable: true });
  const answers = [];
  let send;
  const port = {
    set onmessage(handler) {
      send = handler;
    },
    postMessage(data) {
      for (const [field, message] of fields(Buffer.from(data))) if (field === STREAM_MESSAGE) answers.push(message);
    },
  };
  vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
  globalThis.onmessage({ data: port });
  // Its WebAssembly is compiled in the background.
  for (let waited = 0; !send; waited += 10) {
    if (waited > READY_MS) throw new Error("the trace processor did not start");
    await new Promise((next) => setTimeout(next, 10));
  }
  let sequence = 0;
  return (request, ...body) => {
    const message = Buffer.concat([integerField(RPC.sequence, ++sequence), integerField(RPC.request, request), ...body]);
    send({ data: new Uint8Array(bytesField(STREAM_MESSAGE, message)) });
    return answers.splice(0);
  };
}

function load(call, bytes) {
  for (let at = 0; at < bytes.length; at += PIECE) {
    for (const answer of call(APPEND, bytesField(RPC.append, bytes.subarray(at, at + PIECE)))) {
      const said = fieldOf(answer, RPC.appended);
      const error = said && fieldOf(said, 2);
      if (error) throw new Error(String(error));
    }
  }
  call(FINALIZE);
}

function query(call, sql) {
  const columns = [];
  const cells = [];
  for (const answer of call(QUERY, bytesField(RPC.query, bytesField(1, Buffer.from(sql))))) {
    for (const [field, value] of fields(fieldOf(answer, RPC.answer) ?? Buffer.alloc(0))) {
      if (field === 1) columns.push(String(value));
      if (field === 2 && value.length) throw new Error(`${sql}: ${value}`);
      if (field === 3) cells.push(...batch(value));
    }
  }
  const rows = [];
  for (let at = 0; at < cells.length; at += columns.length) {
    rows.push(Object.fromEntries(columns.map((name, column) => [name, cells[at + column]])));
  }
  return rows;
}

// Cells come by type: which type each has, then all integers, all floats, all texts.
function* batch(message) {
  const part = (field) => fieldOf(message, field) ?? Buffer.alloc(0);
  const integers = varints(part(2));
  const floats = part(3);
  const texts = String(part(5)).split("\0");
  let at = 0;
  for (const type of part(1)) {
    if (type === CELL.integer) yield Number(integers.next().value);
    else if (type === CELL.float) yield floats.readDoubleLE(8 * at++);
    else if (type === CELL.text) yield texts.shift();
    else yield null;
  }
}

// What is wrong with a trace, and what was counted in it.
function check(call, events) {
  const wrong = [];
  const count = (sql) => query(call, `select count(*) as n from ${sql}`)[0].n;
  for (const { name, severity, value } of query(
    call,
    "select name, severity, value from stats where value > 0 and severity in ('error', 'data_loss')",
  )) {
    wrong.push(`${severity} ${name}: ${value}`);
  }
  const slices = events.filter((event) => event.ph === "X");
  const sources = new Set(slices.filter((event) => event.flow_out).map((event) => event.bind_id));
  const expected = {
    slice: slices.length,
    counter: events.filter((event) => event.ph === "C").length,
    flow: slices.filter((event) => event.flow_in && sources.has(event.bind_id)).length,
  };
  for (const [table, wanted] of Object.entries(expected)) {
    const found = count(table);
    if (found !== wanted) wrong.push(`${table}: ${found}, ${wanted} in the file`);
  }
  const threads = query(
    call,
    "select thread.name as name, tid, pid, process.name as process, count(slice.id) as slices from slice " +
      "join thread_track on thread_track.id = slice.track_id join thread using (utid) left join process using (upid) " +
      "group by utid order by utid",
  );
  const named = new Map();
  for (const { ph, name, pid, tid, args } of events) {
    if (ph === "M") named.set(name === "thread_name" ? `${pid}/${tid}` : `${pid}`, args.name);
  }
  const inFile = new Map();
  for (const { pid, tid } of slices) inFile.set(`${pid}/${tid}`, (inFile.get(`${pid}/${tid}`) ?? 0) + 1);
  for (const { name, process, pid, tid, slices } of threads) {
    const place = `${pid}/${tid}`;
    if (!name || !process) wrong.push(`thread ${place} has slices and no name`);
    else if (name !== named.get(place) || process !== named.get(`${pid}`)) wrong.push(`thread ${place}: ${process} ${name}`);
    if (slices !== inFile.get(place)) wrong.push(`thread ${place}: ${slices} slices, ${inFile.get(place)} in the file`);
    inFile.delete(place);
  }
  for (const [place, count] of inFile) wrong.push(`thread ${place}: none of ${count} slices`);
  if (!threads.some(({ name, process }) => name === "ranges" && process === "host")) wrong.push("no thread `ranges`");
  const counted = Object.entries({ ...expected, thread: threads.length }).map(([table, n]) => `${n} ${table}s`);
  return { wrong, said: counted.join(", ") };
}

async function main(process, [folder, trace, ...more]) {
  if (!trace) {
    console.error("usage: node ci/trace_processor.js FOLDER TRACE [--sql QUERY]");
    process.exit(2);
  }
  const call = await engine(folder);
  const bytes = fs.readFileSync(trace);
  load(call, bytes);
  if (more[0] === "--sql") {
    query(call, more[1]).forEach((row) => console.log(JSON.stringify(row)));
    return;
  }
  const { wrong, said } = check(call, JSON.parse(bytes).traceEvents);
  console.log(`${trace}: ${wrong.length ? "wrong" : `read as it is written: ${said}`}`);
  wrong.forEach((line) => console.log(`  ${line}`));
  if (wrong.length) process.exit(1);
}

const node = process;
main(node, node.argv.slice(2)).catch((error) => {
  console.error(error.message);
  node.exit(1);
});
