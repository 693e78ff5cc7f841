//! A library of functions in any language, which a cluster calls, after DEF (T. Feilhauer and M. Sobotka, *DEF: a
//! programming language agnostic framework and execution environment for the parallel execution of library routines*,
//! Journal of Cloud Computing, 2016).
//!
//! ```text
//!   client ── REST ──▶ gateway ──▶ a job for many calls, a message for one
//!                         ▲              │
//!                         │ results      ▼
//!                       store ◀── nodes: tasks ──frames──▶ runtimes (Python, C)
//! ```
//!
//! # A routine
//!
//! The folder `pi` has the file `routine.toml`,
//!
//! ```toml
//! name = "pi"
//! version = "1.0"
//! runtime = "python3"
//! entry = "pi:run"
//! ```
//!
//! and `pi.py` with a function, `def run(part, parts=100): …`. These commands call it, first on this machine, then on a cluster
//! with a ZooKeeper at `127.0.0.1:2181` and a folder for packages and results that all nodes reach:
//!
//! ```text
//! export ROUTINES_STORE=/shared/routines
//! routines deploy pi
//! routines map pi@1.0 --range 0..100                    # 100 calls; a line of JSON for each result
//! export TASKWORK_ZK=127.0.0.1:2181
//! routines node &                                       # one on each machine
//! routines map pi@1.0 --range 0..100 --reduce sum       # the sum of the results
//! routines gateway &                                    # REST, at http://127.0.0.1:8790/
//! curl -s -H 'Content-Type: application/json' http://127.0.0.1:8790/v1/routines/pi@1.0/call -d '{"argument": [0]}'
//! ```
//!
//! # Concepts
//!
//! A *package* is a folder with a description (`routine.toml`) and code; its name and version stand for one content
//! permanently. A direct call is a message from the gateway to a node. A job makes many calls of one routine: its tasks send
//! them in frames to *runtimes*, processes that have loaded the routine, and write the results to the shared *store*. Each
//! call of a job that is done has one result, although nodes may be lost.

mod ranges;
mod wire;
mod signature;
mod template;
mod package;
mod tenant;
mod store;
mod library;
mod resource;
mod isolation;
mod runtime;
mod call;
mod host;
mod space;
mod exact_sum;
mod groups;
mod reduction;
mod reduce;
mod order;
mod usage;
mod tally;
mod progress;
mod batch;
mod search;
mod request;
mod mesh;
mod job_name;
mod table;
mod service;
mod gateway;
mod conform;
mod command;
#[cfg(test)]
mod testing;

pub use self::command::{main, run};

const NAME: &str = "routines";

const VERSION: &str = env!("CARGO_PKG_VERSION");
