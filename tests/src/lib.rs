//! What the tests over the whole workspace share: where instances lie, and what is known of them.

pub mod data;
