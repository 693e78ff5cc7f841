//! The numbers in which bounds are computed.

use std::{
    fmt::Debug,
    ops::{Add, Sub},
};

/// Times as numbers of 16 bits if all that is computed fits into them, so that more are computed at once,
/// and else of 32.
pub(super) trait Time: Debug + Copy + Default + Ord + Add<Output = Self> + Sub<Output = Self> {
    const MAX: Self;

    /// Returns the time, or the maximum if it is greater.
    fn from_u32(time: u32) -> Self;

    fn to_u32(self) -> u32;
}

/// Signed, since these are compared and chosen from by single instructions of every x86-64 processor.
impl Time for i16 {
    const MAX: Self = Self::MAX;

    fn from_u32(time: u32) -> Self {
        Self::try_from(time).unwrap_or(Self::MAX)
    }

    fn to_u32(self) -> u32 {
        u32::try_from(self).unwrap_or(0)
    }
}

impl Time for u32 {
    const MAX: Self = Self::MAX;

    fn from_u32(time: u32) -> Self {
        time
    }

    fn to_u32(self) -> u32 {
        self
    }
}

/// The number of times that are computed at once: as many of 16 bits as a vector register of any x86-64 processor holds.
pub(super) const LANES: usize = 8;

/// Times that are computed at once, of one job each.
pub(super) type Block<T> = [T; LANES];
