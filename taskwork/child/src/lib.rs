//! The processes that tasks start: external programs, isolated calls, runtimes of other languages.
//!
//! [`Group`] starts a process as the leader of a process group, which is killed at the latest when this process exits,
//! for any reason. A [`WorkDir`] is removed by the next process if this one is killed. [`read_tail`] and [`shown`] read the end of its output and format it for messages.
//! On Linux, with the feature `enclosure`, an `Enclosure` limits a process to some files and ports.

#[cfg(all(feature = "enclosure", target_os = "linux"))]
mod enclosure;
mod group;
mod output;
mod work_dir;
#[doc(hidden)]
pub mod testing;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(all(feature = "enclosure", target_os = "linux"))]
pub use self::enclosure::Enclosure;
pub use self::{
    group::{Group, Killer},
    output::{read_tail, shown},
    work_dir::{WorkDir, sweep},
};
