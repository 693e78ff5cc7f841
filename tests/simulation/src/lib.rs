//! A whole cluster in one process, under virtual time, from one seed.
//!
//! What runs here is the real thing: the serving loop, the driver, the protocol core and the coordination of
//! `taskwork`, the recipes of `zk`, its tree. Made up are only the machines, the network, the servers' log,
//! and time. Nodes die, freeze, join and leave; messages are lost, repeated, late; sessions end, and answers
//! are lost after the deed. Then things go well again, and the job must come to its end, with the right
//! answer. The invariants are checked at every step.
//!
//! ```text
//!   seed ─▶ plan ─▶ run ─▶ outcome: violations, figures, a fingerprint of the history
//!                    │
//!                    └─ world (time, network, servers, machines) ── invariants
//! ```
//!
//! The same seed gives the same history, byte for byte. `cargo xtask sim --help` runs seeds; a seed that
//! fails is printed with the command that replays it, and with what of its plan is enough to fail.

mod invariants;
mod plan;
mod run;
mod workload;
mod world;
pub mod campaign;
pub mod long;
pub mod scale;
pub mod shrink;
