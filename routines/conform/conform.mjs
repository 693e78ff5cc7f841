// The routines that `routines conform` calls, as in `conform.py`.

/* global routines */

export const echo = (value) => value;

export const doubled = (values) => values.map((value) => 2 * value);

export const pair = (first, second = 2) => [first, second];

export function fails(number) {
  if (number < 0) throw new RangeError(`the number ${number}`);
  return number;
}

export const invalid = (value) => new Set([value]);

export const large = (size) => "x".repeat(size);

export function prints(size) {
  console.log("to standard output ".repeat(size / 19));
  console.error("to standard error");
  return size;
}

export const process = () => globalThis.process.pid;

export const calls = async (routine, argument) => routines.call(routine, argument);

export function caught(routine, argument) {
  try {
    return routines.call(routine, argument);
  } catch (error) {
    if (error instanceof routines.CallError) return [error.kind, error.message !== ""];
    throw error;
  }
}

const sleep = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Sums the numbers below `last`, and counts its restarts. Without one, it waits at the number `hold` for its stop. */
export function adds(last, hold = -1, size = 0) {
  let { number, total, restarts } = routines.restored({ number: 0, total: 0, restarts: -1 });
  restarts += 1;
  while (number < last) {
    routines.checkpoint({ number, total, restarts, text: "x".repeat(size) });
    if (number === hold && restarts === 0) {
      sleep(0.1);
      continue;
    }
    total += number;
    number += 1;
  }
  return [total, restarts];
}

export class Count extends routines.Search {
  constructor(left, hold = 0, cost = null) {
    super();
    Object.assign(this, { left, hold, cost });
  }

  search(cx) {
    if (typeof this.left !== "number") throw new TypeError("a search has a number of states");
    while (this.left > 0) {
      if (this.left === this.hold) {
        this.hold = 0;
        // A shim need not split a search that has only started.
        sleep(10);
        while (!cx.asked) sleep(0.1);
      }
      if (cx.asked) return;
      this.left -= 1;
      cx.count("states");
      if (cx.bound !== Infinity) cx.count("bound", Math.trunc(cx.bound));
    }
    if (this.hold < 0) {
      this.hold = 0;
      while (!cx.asked) sleep(0.1);
      return;
    }
    if (this.cost !== null) {
      cx.offer(this.cost, { cost: this.cost });
      this.cost = null;
    }
  }

  split() {
    if (this.left < 2) return null;
    const give = Math.floor(this.left / 2);
    this.left -= give;
    return this.but({ left: give });
  }
}
