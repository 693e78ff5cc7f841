/**
 * Calls functions of a library of routines that runs on a cluster. Node 20 or later, no dependencies.
 *
 *     import { connect, range, product } from "./routines.mjs";
 *
 *     const r = connect("http://127.0.0.1:8790");
 *     await r.call("square@1.0", 12);                       // one call; named({ n: 12 }) has named arguments
 *     const job = await r.map("square@1.0", range(0, 1000)); // a job of many calls
 *     for await (const result of job.results()) …           // or: await job.values()
 *     r.job("j-0000000003");                                // later, or elsewhere
 *     const cases = product({ x: range(0, 1e6), y: [0.1, 0.2] });
 *     (await (await r.starmap("f@1.0", cases, { reduce: ["mean"] })).reduced()).mean;
 *
 * A token is in the variable ROUTINES_TOKEN, or in the file of the variable ROUTINES_TOKEN_FILE.
 */

import { readFileSync } from "node:fs";

const INTEGER_MAX = 2 ** 53;
const WAIT_SECONDS = 30;
const OVER = ["successful", "incomplete", "failed", "cancelled"];
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

/** The gateway refuses a request. */
export class RequestError extends Error {
  constructor(status, detail) {
    super(detail);
    Object.assign(this, { name: "RequestError", status });
  }
}

/** A job has no results. */
export class JobError extends Error {
  name = "JobError";
}

/** A call has failed. `kind` is `user`, `invalid`, `crash`, `timeout` or `outcome-unknown`; `trace` is that of the routine. */
export class CallError extends Error {
  constructor(kind, message, trace = "") {
    super(message);
    Object.assign(this, { name: "CallError", kind, trace });
  }
}

/** A file that was uploaded by `put`. As a part of an argument, the routine gets the path of a local copy. */
export class Resource {
  constructor(name) {
    this.name = name;
  }
}

/** The arguments of the calls of a job for `starmap`, or an axis of others, which nodes compute. */
class Space {
  constructor(document) {
    this.document = document;
  }
}

class Named {
  constructor(values) {
    this.values = values;
  }
}

/** Returns the named arguments of a call. */
export const named = (values) => new Named(values);
/** Returns the integers from `from`, excluding `to`. */
export const range = (from, to) => new Space({ range: [from, Math.max(from, to)] });
/** Returns all combinations of the values of axes: an array of them, or an object with names. The last axis changes fastest. */
export const product = (axes) => new Space({ product: documents(axes) });
/** Returns the values of axes with the same index. */
export const zipped = (axes) => new Space({ zip: documents(axes) });
/** Returns the lines of an uploaded file, each of which is a value in JSON. */
export const lines = (resource) => new Space({ file: resource.name });

const documents = (axes) =>
  Array.isArray(axes)
    ? axes.map(document)
    : Object.fromEntries(Object.entries(axes).map(([name, axis]) => [name, document(axis)]));
const document = (values) => (values instanceof Space ? values.document : Array.from(values, encode));

/** Returns a value that JSON can contain. */
function encode(value) {
  if (value === undefined || value === null) return null;
  if (value instanceof Resource) return { $resource: value.name };
  if (typeof value === "bigint")
    return value >= -INTEGER_MAX && value <= INTEGER_MAX ? Number(value) : { $i: String(value) };
  if (typeof value === "number") return encodeNumber(value);
  if (["boolean", "string"].includes(typeof value)) return value;
  if (Array.isArray(value)) return Array.from(value, encode);
  const dtype = Object.keys(KINDS).find((kind) => value instanceof KINDS[kind]);
  if (dtype) return { $a: { dtype, shape: value.shape ?? [value.length], data: toBase64(value) } };
  if (typeof value !== "object" || ![Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    throw new TypeError(
      `a ${value.constructor?.name} is no value: pass null, a boolean, number, bigint, string, array, object or typed array`,
    );
  }
  const entries = Object.entries(value).filter(([, part]) => part !== undefined);
  if (entries.length === 1 && entries[0][0].startsWith("$"))
    throw new TypeError("an object with one key that starts with $ is reserved");
  return Object.fromEntries(entries.map(([key, part]) => [key, encode(part)]));
}

function encodeNumber(value) {
  if (Number.isNaN(value)) return { $f: "nan" };
  if (!Number.isFinite(value)) return { $f: value > 0 ? "inf" : "-inf" };
  // JSON.stringify writes large doubles as integers, and no sign of zero.
  return Math.abs(value) > INTEGER_MAX || Object.is(value, -0)
    ? { $f: Object.is(value, -0) ? "-0" : String(value) }
    : value;
}

function toBase64(array) {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
}

/** Converts JSON objects that stand for numbers and arrays, for `JSON.parse`. An array has the property `shape`. */
function special(_, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const keys = Object.keys(value);
  if (keys.length !== 1) return value;
  if (keys[0] === "$i") return BigInt(value.$i);
  if (keys[0] === "$f") return FLOATS[value.$f] ?? Number(value.$f);
  if (keys[0] !== "$a") return value;
  const { dtype, shape, data } = value.$a;
  return Object.defineProperty(new KINDS[dtype](new Uint8Array(Buffer.from(data, "base64")).buffer), "shape", {
    value: shape,
  });
}

/** The outcome of one call. */
export class Result {
  #value;

  constructor({ index, value = null, error }) {
    this.index = index;
    this.#value = value;
    this.error = error ? new CallError(error.kind, error.message, error.trace) : null;
  }

  /** The value; throws the error of a failed call. */
  get value() {
    if (this.error) throw this.error;
    return this.#value;
  }
}

/** Access to a gateway. */
export class Client {
  constructor(url, { timeout = 90 } = {}) {
    this.url = url.replace(/\/+$/, "");
    this.timeout = timeout;
    const token = tokenFor(new URL(url));
    this.headers = token ? { authorization: `Bearer ${token}` } : {};
  }

  /** Calls a routine with positional arguments, or with `named` ones, and returns its result. */
  async call(routine, ...args) {
    return new Result(await this.ask("POST", `/v1/routines/${place(routine)}/call`, { argument: argument(args) }))
      .value;
  }

  /**
   * Starts a job with one call for each argument, which is the only one of its call. Options: a job with the same `key` is
   * not started a second time; `reduce` has the names of numbers for `reduced`, and `by` the arguments that select `groups`.
   */
  map(routine, values, options) {
    return this.#submit(
      routine,
      values instanceof Space ? values.document : Array.from(values, (value) => [encode(value)]),
      options,
    );
  }

  /** Starts a job in which each array has positional arguments, and each object named ones, or with those of a space. */
  starmap(routine, points, options) {
    return this.#submit(routine, document(points), options);
  }

  /** Starts a search with positional arguments, or with `named` ones. */
  async search(routine, ...args) {
    return this.job((await this.ask("POST", "/v1/jobs", { routine, argument: argument(args) })).job);
  }

  async #submit(routine, points, { key, reduce, by } = {}) {
    const headers = key ? { "idempotency-key": key } : {};
    return this.job((await this.ask("POST", "/v1/jobs", { routine, arguments: points, reduce, by }, headers)).job);
  }

  /** Returns a job that was started earlier or elsewhere. */
  job(id) {
    return new Job(this, id);
  }

  /** Uploads bytes, a `Blob`, or a text as a resource. An earlier one with this name is replaced for new jobs. */
  async put(name, content) {
    await this.send("PUT", `/v1/resources/${place(name)}`, content);
    return new Resource(name);
  }

  /** Deletes a resource with all its earlier contents. */
  async delete(name) {
    await this.send("DELETE", `/v1/resources/${place(name)}`);
  }

  /** Returns the parameters, the schema of the result and the text of a routine. */
  signature(routine) {
    return this.ask("GET", `/v1/routines/${place(routine)}`);
  }

  async ask(method, path, body, headers = {}) {
    const content = body && JSON.stringify(body);
    const answer = await this.send(
      method,
      path,
      content,
      body ? { "content-type": "application/json", ...headers } : headers,
    );
    return JSON.parse(await answer.text(), special);
  }

  /** Sends a request. The time limit is that of the head of the answer. */
  async send(method, path, body, headers = {}) {
    const control = new AbortController();
    const late = () =>
      control.abort(new DOMException(`${method} ${path} has no answer within ${this.timeout} s`, "TimeoutError"));
    const timer = setTimeout(late, this.timeout * 1000);
    try {
      const answer = await fetch(this.url + path, {
        method,
        body,
        headers: { ...this.headers, ...headers },
        signal: control.signal,
      });
      if (answer.ok) return answer;
      const text = await answer.text();
      throw new RequestError(answer.status, detailOf(text));
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Returns the token for a gateway, which is sent over TLS or to this machine only. */
function tokenFor(url) {
  const { ROUTINES_TOKEN = "", ROUTINES_TOKEN_FILE: file } = process.env;
  const token = (file ? readFileSync(file, "ascii") : ROUTINES_TOKEN).trim();
  const isHere = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (token && url.protocol !== "https:" && !isHere) {
    throw new Error(`the token is not sent to ${url}, which others could read: use https, or unset ROUTINES_TOKEN`);
  }
  return token;
}

function detailOf(text) {
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text.trim();
  }
}

const place = (name) => encodeURIComponent(name).replace("%40", "@");

const argument = (args) => encode(args.length === 1 && args[0] instanceof Named ? args[0].values : args);

/** A job of calls. Its id is enough to find it again. */
export class Job {
  constructor(client, id) {
    this.client = client;
    this.id = id;
  }

  /** Returns the state, with the numbers of calls and of those that have ended, at once or after a time. */
  status(seconds = 0) {
    return this.#ask("GET", seconds ? `?wait=${seconds}` : "");
  }

  /** Yields the state at intervals of seconds, and at last that of the job that is over. */
  async *progress(every = 1) {
    for (
      let status = await this.status();
      ;
      status = await this.status(Math.min(Math.max(1, Math.trunc(every)), WAIT_SECONDS))
    ) {
      yield status;
      if (OVER.includes(status.state)) return;
    }
  }

  /** Waits until the job is over, and returns its state. */
  async wait({ timeout = Infinity } = {}) {
    const deadline = performance.now() + timeout * 1000;
    for (;;) {
      const left = Math.trunc((deadline - performance.now()) / 1000);
      const status = await this.status(Math.max(1, Math.min(left, WAIT_SECONDS, Math.trunc(this.client.timeout / 2))));
      if (OVER.includes(status.state)) return status;
      if (performance.now() >= deadline)
        throw new DOMException(`job ${this.id} is ${status.state} after ${timeout} s`, "TimeoutError");
    }
  }

  /** Waits until the job is over, and yields all results, sorted by index. */
  async *results() {
    await this.#succeed();
    const answer = await this.client.send("GET", `${this.#path()}/results`, undefined, {
      accept: "application/x-ndjson",
    });
    let rest = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      const parts = (rest + text).split("\n");
      rest = parts.pop();
      for (const line of parts) yield new Result(JSON.parse(line, special));
    }
  }

  /** Waits until the job is over, and returns the values. Throws the error of the first failed call. */
  async values() {
    const values = [];
    for await (const result of this.results()) values.push(result.value);
    return values;
  }

  /** Waits until a search is over, and returns its `counts` and the `best` solution with its cost, or null. */
  async found() {
    await this.#succeed();
    return this.#ask("GET", "/results");
  }

  /** Waits until the job is over, and returns the numbers that `reduce` has requested, by their names. */
  async reduced() {
    return (await this.#complete()).reduced ?? {};
  }

  /** Waits until the job is over, and returns the numbers of each group, sorted by its arguments, which are in `by`. */
  async groups() {
    return (await this.#complete()).groups ?? [];
  }

  cancel() {
    return this.#ask("POST", "/cancel");
  }

  /** Starts a job of the failed calls of this one, which is over. Their indices remain. It is started once. */
  async rerun() {
    return this.client.job((await this.#ask("POST", "/rerun")).job);
  }

  async #complete() {
    const status = await this.#succeed();
    const failed = Object.values(status.tally.failed).reduce((sum, number) => sum + number, 0);
    if (failed) throw new JobError(`${failed} calls of job ${this.id} have failed: results() has the errors`);
    if (status.reason) throw new JobError(`job ${this.id}: ${status.reason}`);
    return status;
  }

  async #succeed() {
    const status = await this.wait();
    if (status.state !== "successful") throw new JobError(`job ${this.id} is ${status.state}: ${status.reason ?? ""}`);
    return status;
  }

  #ask(method, path) {
    return this.client.ask(method, this.#path() + path);
  }

  #path() {
    return `/v1/jobs/${encodeURIComponent(this.id)}`;
  }
}

/** Returns a client of the gateway at this address. Each request may take `timeout` seconds. */
export const connect = (url = "http://127.0.0.1:8790", options) => new Client(url, options);
