//! Programs on `dataflow-framework`, each one to start from.
//!
//! | program | what it shows |
//! |---|---|
//! | [`increment`] | a file that each call updates: a chain |
//! | [`matmul`] | matrices of blocks: many chains of updates, side by side |
//! | [`sparse_lu`] | the same on a sparse matrix, where what is called depends on what is there |
//! | [`kmeans`] | rounds that depend on each other through one small value, and a reduction |
//! | [`hmmpfam`] | an external program that runs on fragments of files, and a reduction |
//! | [`genes`] | the same with thousands of files, which tasks read and write themselves |
//! | [`mergesort`] | a recursive program, whose tasks have several results |
//! | [`nbody`] | data that is updated while others read it as it was before |

pub mod increment;
pub mod matmul;
pub mod sparse_lu;
pub mod kmeans;
pub mod hmmpfam;
pub mod genes;
pub mod mergesort;
pub mod nbody;
