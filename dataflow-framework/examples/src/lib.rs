//! Example programs on `dataflow-framework`.
//!
//! | program | demonstrates |
//! |---|---|
//! | [`increment`] | a file that each call updates: a chain |
//! | [`matmul`] | matrices of blocks: many parallel chains of updates |
//! | [`sparse_lu`] | the same on a sparse matrix, where the calls depend on the existing blocks |
//! | [`kmeans`] | rounds that depend on each other through one small value, and a reduction |
//! | [`hmmpfam`] | an external program that runs on fragments of files, and a reduction; the traits instead of the attribute `program`, because the submitter reads files |
//! | [`genes`] | the same with thousands of files, which tasks read and write themselves |
//! | [`mergesort`] | a recursive program, whose tasks have several results |
//! | [`nbody`] | data that is updated while others read its previous version |

use std::num::{NonZero, ParseIntError};

pub mod increment;
pub mod matmul;
pub mod sparse_lu;
pub mod kmeans;
pub mod hmmpfam;
pub mod genes;
pub mod mergesort;
pub mod nbody;

/// Parses a number of at least 1.
fn positive(text: &str) -> Result<usize, ParseIntError> {
    text.parse().map(NonZero::get)
}
