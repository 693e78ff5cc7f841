//! Shared helpers for the tests of the whole workspace: instances with known results, clusters of real
//! processes, hosts with breakable links, and programs to run on them.

pub mod data;
pub mod cluster;
pub mod gate;
pub mod grove;
pub mod hosts;
pub mod mesh;
pub mod proxy;
pub mod published;
mod shared;
pub mod tree;
