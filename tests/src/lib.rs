//! Shared helpers for the tests of the whole workspace: instances with known results, clusters of real
//! processes, hosts with breakable links, and programs to run on them.

pub mod data;
pub mod cluster;
pub mod gate;
pub mod greetings;
pub mod grove;
pub mod hosts;
pub mod mesh;
pub mod proxy;
pub mod published;
mod shared;
pub mod tree;

/// The programs of the documents that are in no package, as doc tests. A package cannot include a file from outside of
/// its folder.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/tutorial.md")]
    mod tutorial {}
    #[doc = include_str!("../../docs/workflows.md")]
    mod workflows {}
}
