//! What the tests over the whole workspace share: where instances lie and what is known of them, clusters of
//! real processes, hosts between which links break, and a program to run on them.

pub mod data;
pub mod cluster;
pub mod hosts;
pub mod proxy;
pub mod published;
pub mod tree;
