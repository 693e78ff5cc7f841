//! Programs on `dataflow-framework`, each one to start from.
//!
//! | program | what it shows |
//! |---|---|
//! | [`matmul`] | matrices of blocks: many chains of updates, side by side |
//! | [`sparse_lu`] | the same on a sparse matrix, where what is called depends on what is there |
//! | [`kmeans`] | rounds that depend on each other through one small value, and a reduction |

pub mod matmul;
pub mod sparse_lu;
pub mod kmeans;
