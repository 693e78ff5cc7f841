// Runs the routines of a package for a host: reads frames from one pipe and answers on another.
//
// A frame is `u32 length, u32 JSON length, JSON, bytes`, little endian. Each call is answered once, by a `result` or an
// `error`. Standard output and standard error are the log, so routines may print. Node 20 or later, no dependencies.
//
// Node cannot map the page of a search, or of a function with checkpoints: the shim reads its first byte. When it is set,
// the shim sends the state.
"use strict";

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const { join } = require("node:path");
const { pathToFileURL } = require("node:url");
const { inspect } = require("node:util");
const v8 = require("node:v8");

const VERSION = 1;
const FRAME_BYTES_MAX = 64 << 20;
// Room for the rest of a message around a value.
const VALUE_BYTES_MAX = FRAME_BYTES_MAX - 1024;
const DEPTH_MAX = 100;
const INTEGER_MAX = 2 ** 53;
// The size of a read. Smaller than those that Node does not take from its pool.
const PART_BYTES = 4000;
const FLUSH_MS = 10;
const FLUSH_BYTES = 1 << 20;
const STATE_BYTES_MAX = 1 << 20;
const SOLUTION_BYTES_MAX = 64 << 10;
const NAMES_MAX = 1000;
// Requests in the first byte of the page: 1 and 2 to a search, 3 also to a function, 4 to a function.
const [BOUND, SPLIT, PAUSE] = [1, 2, 3];
// The time that a search runs before it is split again, so that it advances however often parts are requested.
const SPLIT_MS = 1;
// The reads of `cx.asked` for one of the clock, while less than a millisecond passes between those of the clock.
const ASKED_READS = 16;

const KINDS = {
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  f32: Float32Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  u64: BigUint64Array,
  f64: Float64Array,
};
const FLOATS = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const SURROGATE = /\p{Surrogate}/u;
const SPECIAL = /"(\$|\\u0024)/;

/** A value that is no argument or result. */
class Invalid extends Error {}

/** A call has failed. */
class CallError extends Error {
  constructor(kind, message, trace = "") {
    super(message);
    Object.assign(this, { name: "CallError", kind, trace });
  }
}

/** Ends a call that continues elsewhere from its state. */
class Stopped {}

/** A part of a search tree, with the methods `search(cx)` and `split()`. Its attributes are serialized. */
class Search {
  /** Returns a copy with other values of attributes. */
  but(changes) {
    return Object.assign(Object.create(Object.getPrototypeOf(this)), this, changes);
  }
}

function exit(message) {
  console.error(message);
  process.exit(1);
}

/** Returns a result as JSON that every language reads alike. */
function encode(value, depth = 0) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number") return encodeNumber(value);
  if (typeof value === "bigint") return isExact(value) ? `${value}` : `{"$i":"${value}"}`;
  if (typeof value === "string") {
    if (SURROGATE.test(value))
      throw new Invalid("a string in the result has half of a surrogate pair, which is no character");
    return JSON.stringify(value);
  }
  if (depth >= DEPTH_MAX) throw new Invalid(`the result is nested more than ${DEPTH_MAX} deep`);
  if (Array.isArray(value)) return `[${Array.from(value, (part) => encode(part, depth + 1)).join()}]`;
  if (ArrayBuffer.isView(value)) return encodeArray(value);
  const prototype = Object.getPrototypeOf(value);
  if (typeof value !== "object" || (prototype !== null && prototype !== Object.prototype)) {
    const type = typeof value === "object" ? value.constructor?.name : typeof value;
    throw new Invalid(
      `a ${type} is no result: return null, a boolean, number, bigint, string, array, object or typed array`,
    );
  }
  const entries = Object.entries(value).filter(([, part]) => part !== undefined);
  if (entries.length === 1 && entries[0][0].startsWith("$")) {
    throw new Invalid("an object with one key that starts with $ in the result is reserved");
  }
  return `{${entries.map(([key, part]) => `${encode(key)}:${encode(part, depth + 1)}`).join()}}`;
}

const isExact = (integer) => integer >= -INTEGER_MAX && integer <= INTEGER_MAX;

function encodeNumber(value) {
  if (!Number.isFinite(value)) return `{"$f":"${Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf"}"}`;
  if (Object.is(value, -0)) return "-0.0";
  // With an exponent it is no integer.
  return isExact(value) ? String(value) : value.toExponential();
}

function encodeArray(array) {
  const kind = Object.keys(KINDS).find((name) => array instanceof KINDS[name]);
  const shape = array.shape ?? [array.length];
  if (!kind) throw new Invalid(`a ${array.constructor.name} is no result: return another typed array`);
  if (!hasShape(shape, array.length)) throw new Invalid(`${array.length} numbers have no shape ${inspect(shape)}`);
  const data = Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
  return JSON.stringify({ $a: { dtype: kind, shape, data } });
}

function hasShape(shape, length) {
  const areLengths = Array.isArray(shape) && shape.every((one) => Number.isInteger(one) && one >= 0);
  return areLengths && shape.reduce((product, one) => product * one, 1) === length;
}

function encodeResult(value) {
  const encoded = encode(value);
  const size = Buffer.byteLength(encoded);
  if (size > VALUE_BYTES_MAX) throw new Invalid(`the result has ${size} bytes, more than ${VALUE_BYTES_MAX}`);
  return encoded;
}

/** Converts JSON objects that stand for numbers, arrays and paths of files, in place. */
function decode(value) {
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value);
  if (keys.length === 1 && keys[0].startsWith("$") && !Array.isArray(value)) {
    const [key, special] = [keys[0], value[keys[0]]];
    if (key === "$file") return special;
    if (key === "$i" && /^-?\d+$/.test(special)) return isExact(BigInt(special)) ? Number(special) : BigInt(special);
    if (key === "$f" && (special in FLOATS || /\d/.test(special))) return FLOATS[special] ?? Number(special);
    if (key === "$a") return decodeArray(special);
    if (["$i", "$f"].includes(key)) throw new Invalid(`the argument is invalid: ${inspect(special)} is no number`);
  }
  for (const key of keys) value[key] = decode(value[key]);
  return value;
}

/** Returns a typed array with the property `shape`. */
function decodeArray({ dtype, shape, data }) {
  const kind = Object.hasOwn(KINDS, dtype) && KINDS[dtype];
  const bytes = Buffer.from(String(data), "base64");
  if (!kind || bytes.toString("base64") !== data || !hasShape(shape, bytes.length / kind.BYTES_PER_ELEMENT)) {
    throw new Invalid(
      `the argument is invalid: an array of ${bytes.length} bytes has the type ${dtype} and the shape ${inspect(shape)}`,
    );
  }
  // A copy, since its place in memory must be aligned.
  const array = new kind(new Uint8Array(bytes).buffer);
  return Object.defineProperty(array, "shape", { value: shape });
}

/** The frames from and to the host. */
class Pipes {
  constructor() {
    this.input = fs.openSync(process.env.ROUTINES_IN, "r");
    this.output = fs.openSync(process.env.ROUTINES_OUT, "w");
    this.unread = Buffer.alloc(0);
    // The bytes of the last frame.
    this.bytes = this.unread;
    this.hasSpecial = false;
  }

  take(size) {
    if (this.unread.length < size) {
      const all = Buffer.allocUnsafe(Math.max(size, PART_BYTES));
      let length = this.unread.copy(all);
      while (length < size) {
        const more = fs.readSync(this.input, all, length, all.length - length, null);
        if (more === 0) process.exit(0);
        length += more;
      }
      this.unread = all.subarray(0, length);
    }
    const taken = this.unread.subarray(0, size);
    this.unread = this.unread.subarray(size);
    return taken;
  }

  receive() {
    const head = this.take(8);
    const [length, jsonLength] = [head.readUInt32LE(0), head.readUInt32LE(4)];
    if (length < 4 || length > FRAME_BYTES_MAX || jsonLength > length - 4) {
      exit(`the host has sent a frame of ${length} bytes with JSON of ${jsonLength} bytes`);
    }
    const content = this.take(length - 4);
    const text = content.toString("utf8", 0, jsonLength);
    this.bytes = content.subarray(jsonLength);
    this.hasSpecial = SPECIAL.test(text);
    return JSON.parse(text);
  }

  /** Returns a value of the last message with its special values. */
  decode(value) {
    return this.hasSpecial ? decode(value) : value;
  }

  send(message, data = []) {
    const size = Buffer.byteLength(message);
    const frame = Buffer.allocUnsafe(8 + size + data.length);
    frame.writeUInt32LE(4 + size + data.length, 0);
    frame.writeUInt32LE(size, 4);
    frame.write(message, 8);
    frame.set(data, 8 + size);
    for (let written = 0; written < frame.length;) written += fs.writeSync(this.output, frame, written);
  }
}

const pipes = new Pipes();

/** The page with requests of the host. */
const page = {
  file: fs.openSync(process.env.ROUTINES_PAGE, "r+"),
  bytes: Buffer.alloc(24),
  // Whether a call has offered a state, which the host learns by the first one.
  hasStates: false,

  request() {
    fs.readSync(this.file, this.bytes, 0, 1, 0);
    return this.bytes[0];
  },

  clear() {
    fs.writeSync(this.file, "\0", 0);
  },

  /** Returns the bound. While it is written, its copies differ. */
  bound() {
    do fs.readSync(this.file, this.bytes, 8, 16, 8);
    while (this.bytes.compare(this.bytes, 16, 24, 8, 16) !== 0);
    return this.bytes.readDoubleLE(8);
  },
};
// Removed from the environment, so that routines do not write there by mistake.
for (const name of ["IN", "OUT", "PAGE"]) delete process.env[`ROUTINES_${name}`];

/** Results that are sent together. */
const answers = {
  results: [],
  bytes: 0,
  sent: performance.now(),

  add(call, encoded) {
    if (this.bytes + encoded.length > FLUSH_BYTES) this.flush();
    this.results.push(`[${call},${encoded}]`);
    this.bytes += encoded.length;
    if (performance.now() - this.sent > FLUSH_MS) this.flush();
  },

  flush() {
    if (this.results.length) pipes.send(`{"type":"result","values":[${this.results.join()}]}`);
    Object.assign(this, { results: [], bytes: 0, sent: performance.now() });
  },

  /** Reports the failure of a call with an id, of a search, or of the load. */
  fail(error, id) {
    this.flush();
    const [kind, trace] = error instanceof Invalid ? ["invalid", ""] : ["user", traceOf(error)];
    const clean = (text) => text.replace(/\p{Surrogate}/gu, "\ufffd");
    const message = clean(messageOf(error).slice(0, 4096));
    pipes.send(JSON.stringify({ type: "error", id, kind, message, trace: clean(trace.slice(0, 16384)) }));
  },
};

/** Returns the stack of an error without the lines of this file and of Node. */
function traceOf(error) {
  const isHidden = (line) => /^ +at /.test(line) && (line.includes(__filename) || line.includes("node:internal"));
  return inspect(error)
    .split("\n")
    .filter((line) => !isHidden(line))
    .join("\n");
}

function messageOf(error) {
  if (!(error instanceof Error)) return `thrown: ${inspect(error)}`;
  if (error instanceof Invalid || error instanceof CallError) return error.message;
  const isRefused = ["EACCES", "EPERM"].includes(error.code) && "ROUTINES_ISOLATED" in process.env;
  const hint = ": routines are isolated: --read, --write and --network grant files and ports";
  return `${error.name}: ${error.message}${isRefused ? hint : ""}`;
}

/** The job of a running search: `asked`, `bound`, `count(name, number)` and `offer(cost, solution)`. */
class Context {
  #counts = new Map();
  #reads = 0;
  #read = 0;
  #request = 0;
  bound = Infinity;

  /** Whether the search must return. It reads the page once a millisecond, and the clock at each or each 16th read. */
  get asked() {
    if (--this.#reads <= 0) {
      const now = Date.now();
      this.#reads = now === this.#read ? ASKED_READS : 1;
      if (now !== this.#read) this.#request = page.request();
      this.#read = now;
    }
    return this.#request !== 0;
  }

  count(name, number = 1) {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + Number(number));
  }

  /** Offers a solution. Returns whether its cost is less than that of the best known one. */
  offer(cost, solution) {
    if (!Number.isFinite(cost)) throw new RangeError(`the cost of a solution is ${inspect(cost)}, which is not finite`);
    if (cost >= this.bound) return false;
    const encoded = encode(solution);
    if (Buffer.byteLength(encoded) > SOLUTION_BYTES_MAX) {
      throw new RangeError(`the solution has more than ${SOLUTION_BYTES_MAX} bytes as JSON`);
    }
    pipes.send(`{"type":"offer","cost":${encodeNumber(cost)},"solution":${encoded}}`);
    this.bound = cost;
    return true;
  }

  begin() {
    this.#reads = this.#read = this.#request = 0;
    this.bound = Math.min(this.bound, page.bound());
  }

  /** Sends a message with the new numbers. */
  send(message, data) {
    if (this.#counts.size > NAMES_MAX) throw new Invalid(`cx.count has more than ${NAMES_MAX} names`);
    const wrong = [...this.#counts].find(([, number]) => !Number.isInteger(number) || !isExact(number));
    if (wrong)
      throw new Invalid(`cx.count of ${wrong[0]} is ${wrong[1]}, which is no integer up to 2^53: add less at a time`);
    pipes.send(JSON.stringify({ ...message, counts: Object.fromEntries(this.#counts) }), data);
    this.#counts.clear();
  }
}

function serialized(value, name) {
  try {
    const state = v8.serialize(value);
    if (state.length <= STATE_BYTES_MAX) return state;
  } catch (error) {
    throw new Invalid(`${name} cannot be serialized: ${messageOf(error)}`);
  }
  throw new Invalid(`${name} has more than ${STATE_BYTES_MAX} bytes: keep large data in files`);
}

/** Searches until all is done, or the host has sent another message than `go`, which is returned. */
async function runSearch(search, cx) {
  for (let since = performance.now(); ;) {
    cx.begin();
    await search.search(cx);
    const asked = page.request();
    if (!asked) return cx.send({ type: "result" });
    if (asked === BOUND || (asked === SPLIT && performance.now() - since < SPLIT_MS)) {
      // Before the bound is read. The host repeats a request that is cleared here.
      page.clear();
      continue;
    }
    const part = asked === SPLIT ? search.split() : null;
    const rest = serialized({ ...search }, "the state of the search");
    if (part) {
      const given = serialized({ ...part }, "the state of the search");
      cx.send({ type: "child", part: given.length }, Buffer.concat([given, rest]));
    } else {
      cx.send({ type: "paused" }, rest);
    }
    const message = pipes.receive();
    if (message.type !== "go") return message;
    since = performance.now();
  }
}

/** Runs a search from its state or its argument. Returns the message that has replaced it, if there is one. */
async function startSearch({ routine, parameters }, argument) {
  try {
    const search = pipes.bytes.length
      ? Object.assign(Object.create(routine.prototype), v8.deserialize(pipes.bytes))
      : new routine(...parameters.match(pipes.decode(argument)));
    return await runSearch(search, new Context());
  } catch (error) {
    answers.fail(error);
  }
}

// The running call: its id, the state from which it continues, and whether it has stopped; null in a search.
let running = null;

function runningCall(name) {
  if (running) return running;
  throw new Error(`routines.${name} works in a running routine that is a function`);
}

globalThis.routines = Object.freeze({
  Search,
  CallError,

  /** Calls another routine from a running one, and returns its result. */
  call(routine, ...args) {
    runningCall("call");
    answers.flush();
    pipes.send(`{"type":"call","routine":${JSON.stringify(String(routine))},"argument":${encodeResult(args)}}`);
    const { error, value } = pipes.receive();
    if (error) throw new CallError(error.kind, error.message, error.trace);
    return pipes.decode(value);
  },

  /** Offers a state from which the running call can continue, in case it is interrupted here or later. */
  checkpoint(state) {
    const call = runningCall("checkpoint");
    if (call.isStopped) throw new Stopped();
    if (page.hasStates && !page.request()) return;
    page.hasStates = true;
    answers.flush();
    const encoded = serialized(state, "the state of the call");
    call.isStopped = page.request() === PAUSE;
    // Before the state is sent. The host repeats a request that is cleared here.
    if (!call.isStopped) page.clear();
    pipes.send(`{"type":"checkpoint","id":${call.id}}`, encoded);
    if (call.isStopped) throw new Stopped();
  },

  /** Returns the state from which the running call continues, or the default if it starts. */
  restored(value) {
    const { restored } = runningCall("restored");
    return restored.length ? v8.deserialize(restored) : value;
  },
});

const TOKEN = /\/\*[^]*?\*\/|\/\/.*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\[^]|[^`\\])*`|[^]/g;

/** The parameters of a function, or of the constructor of a class. */
class Parameters {
  constructor(routine) {
    const text = Function.prototype.toString.call(routine);
    const own = /^class\b/.test(text) ? /\bconstructor\s*\(/.exec(text)?.index : 0;
    const parent = Object.getPrototypeOf(routine);
    if (own === undefined && parent !== Function.prototype) return new Parameters(parent);
    this.isKnown = !/\{\s*\[native code\]\s*\}$/.test(text);
    this.least = routine.length;
    const alone = /^(?:async\s+)?([\w$]+)\s*=>/.exec(text);
    this.texts = alone ? [alone[1]] : own === undefined ? [] : Parameters.split(text.slice(text.indexOf("(", own) + 1));
    this.names = this.texts.map((parameter) => /^[^\s=]+/.exec(parameter)[0]);
  }

  /** Returns the texts between the commas up to the closing parenthesis, without comments. */
  static split(text) {
    const texts = [""];
    let depth = 0;
    for (const [token] of text.matchAll(TOKEN)) {
      if (depth === 0 && token === ")") break;
      depth += "([{".includes(token) - ")]}".includes(token);
      if (depth === 0 && token === ",") texts.push("");
      else if (!/^\/[*/]/.test(token)) texts[texts.length - 1] += token;
    }
    return texts.map((one) => one.trim()).filter(Boolean);
  }

  /** Returns the arguments of a call: an array has positional ones, an object named ones, another value is the only one. */
  match(argument) {
    const isNamed =
      argument !== null && typeof argument === "object" && !Array.isArray(argument) && !ArrayBuffer.isView(argument);
    if (isNamed && this.texts.length === 1 && this.texts[0].startsWith("{")) return [argument];
    const list = Array.isArray(argument) ? argument : isNamed ? [] : [argument];
    for (const name of isNamed ? Object.keys(argument) : []) {
      const place = this.names.indexOf(name);
      if (place < 0) throw new TypeError(`the routine has no parameter ${JSON.stringify(name)}`);
      list[place] = argument[name];
    }
    if (!this.isKnown) return list;
    const hasRest = this.texts.at(-1)?.startsWith("...");
    const missing = this.names.slice(0, this.least).find((_, place) => !(place in list));
    if (missing) throw new TypeError(`the argument ${missing} is missing`);
    if (list.length > this.texts.length && !hasRest) {
      throw new TypeError(`the routine has ${this.texts.length} parameters, but ${list.length} arguments were passed`);
    }
    return list;
  }
}

async function load({ folder, entry, kind }) {
  const [module, name] = entry.split(":");
  const place = join(folder, ...module.split("."));
  const file = [".mjs", ".js", ".cjs"].map((extension) => place + extension).find(fs.existsSync);
  if (!file) throw new Error(`the package has no module ${module}: no file ${place}.mjs, .js or .cjs`);
  const exported = await import(pathToFileURL(file)).catch((error) => {
    // Node reports the place of such an error only here.
    if (error instanceof SyntaxError) error.stack = spawnSync(process.execPath, ["--check", file]).stderr.toString();
    throw error;
  });
  const find = (from) => name.split(".").reduce((within, part) => within?.[part], from);
  // Node finds some names of modules of CommonJS only in their default.
  const routine = find(exported) ?? find(exported.default);
  if (typeof routine !== "function") throw new TypeError(`${entry} is not a function that the module exports`);
  const isSearch = [routine.prototype?.search, routine.prototype?.split].every(
    (method) => typeof method === "function",
  );
  if (kind === "search" && !isSearch) throw new TypeError(`${entry} is not a class with the methods search and split`);
  return { routine, isSearch: kind === "search", parameters: new Parameters(routine) };
}

/** Makes a call and answers it. Returns whether it was stopped instead. */
async function run({ routine, parameters }, id, argument, restored) {
  running = { id, restored, isStopped: false };
  try {
    let value = routine(...parameters.match(pipes.decode(argument)));
    if (typeof value?.then === "function") value = await value;
    // Also if the routine has caught the stop.
    if (!running.isStopped) answers.add(id, encodeResult(value));
  } catch (error) {
    if (!running.isStopped) answers.fail(error, id);
  }
  return running.isStopped;
}

async function runAll(loaded, calls) {
  // A single call may continue from its state. Later frames replace the bytes, and whether there are special values.
  const [restored, hasSpecial] = [pipes.bytes, pipes.hasSpecial];
  let isStopped = false;
  for (const [id, argument] of calls) {
    pipes.hasSpecial = hasSpecial;
    isStopped = await run(loaded, id, argument, restored);
    if (isStopped) break;
  }
  answers.flush();
  if (isStopped) pipes.send('{"type":"stopped"}');
}

async function main() {
  let loaded = null;
  let following = null;
  for (;;) {
    const message = following ?? pipes.receive();
    following = null;
    if (message.type === "hello") {
      if (!message.versions.includes(VERSION))
        exit(`the host speaks versions ${message.versions} of the protocol, this shim ${VERSION}`);
      pipes.send(JSON.stringify({ type: "ready", version: VERSION, language: `node ${process.versions.node}` }));
    } else if (message.type === "load") {
      try {
        loaded = await load(message);
        pipes.send('{"type":"ready"}');
      } catch (error) {
        answers.fail(error);
      }
    } else if (message.type === "call") {
      await runAll(loaded, [[message.id, message.argument]]);
    } else if (message.type === "many") {
      await runAll(loaded, message.calls);
    } else if (message.type === "search") {
      following = await startSearch(loaded, message.argument);
    } else {
      exit(`the host has sent the unknown message ${inspect(message.type)}`);
    }
  }
}

// Otherwise Node keeps output to a full pipe until its loop of events runs, but that waits for the host.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
process.on("beforeExit", () => exit("the routine waits for a promise that nothing settles"));
main().catch((error) => exit(inspect(error)));
