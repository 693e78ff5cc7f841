//! Objects in folders, in buckets and on web servers, for threads that block.
//!
//! An object appears complete under its name, or not at all; on a web server, that depends on the server. Credentials come
//! from the environment of the process, as the programs of the providers read them.

mod connection;
mod object;
mod objects;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(all(test, feature = "cloud"))]
mod tests;

pub use self::{
    object::{Object, Tag},
    objects::{Download, Objects, PART_BYTES, Upload},
};
