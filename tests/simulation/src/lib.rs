//! A simulation of a whole cluster in one process, in virtual time, from one seed.
//!
//! Most of the code is the real one: the serving loop, the driver, the protocol core and the coordination of
//! `taskwork`, the recipes of `zk` and its tree. Only the machines, the network, the servers' log and time
//! are simulated. Nodes die, freeze, join and leave; messages are lost, repeated or late; sessions end, and
//! answers are lost after the operation was executed. Then the faults end, and the job must complete with the
//! right result. The invariants are checked at every step.
//!
//! ```text
//!   seed ─▶ plan ─▶ run ─▶ outcome: violations, figures, a fingerprint of the history
//!                    │
//!                    └─ world (time, network, servers, machines) ── invariants
//! ```
//!
//! The same seed produces the same history, byte for byte. `cargo xtask sim --help` shows how to run seeds; a
//! failing seed is printed with the command that replays it, and with a minimal part of its plan that still
//! fails.

mod invariants;
mod plan;
mod run;
mod workload;
mod world;
pub mod campaign;
pub mod long;
pub mod scale;
pub mod shares;
pub mod shrink;
