//! Symmetry: permutations of the places that keep all distances, or of the facilities that keep all flows.
//!
//! If such a permutation fixes all used places, it maps the completions of a
//! state to completions of the same costs. So of the places that it maps to each other, one suffices
//! for the next facility: the best solution with another is as good as the best with that one. The same is
//! true of the facilities for the next place.
//!
//! Each omitted set of completions has an equivalent that remains, below which
//! the same is true again: by induction an optimum remains, even if few of the permutations are known. So
//! they are searched for only while that is cheap.

use serde::{Deserialize, Serialize};

/// The maximum number of permutations that are kept.
const KEPT_MAX: usize = 1024;
/// The maximum number of steps of the search for them.
const STEPS_MAX: usize = 200_000;

/// Permutations that keep a matrix as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Symmetry {
    /// Pairs that can be exchanged while all else stays.
    twins: Vec<(u8, u8)>,
    /// Others: the image of each index. Twins stay in their order.
    permutations: Vec<Vec<u8>>,
}

/// The search for permutations.
struct Finder<'a> {
    size: usize,
    matrix: &'a [i64],
    /// The next smaller twin of each index.
    smaller: Vec<Option<usize>>,
    /// Each row's entries in order: only rows with the same can take each other's place.
    profiles: Vec<Vec<i64>>,
    steps: usize,
    found: Vec<Vec<u8>>,
}

impl Symmetry {
    /// Finds permutations of a matrix with `size` rows.
    pub(super) fn of(size: usize, matrix: &[i64]) -> Self {
        let at = |a: usize, b: usize| matrix[a * size + b];
        let is_twin = |a: usize, b: usize| {
            let others = (0..size).filter(|&c| c != a && c != b);
            at(a, a) == at(b, b)
                && at(a, b) == at(b, a)
                && others.into_iter().all(|c| at(a, c) == at(b, c) && at(c, a) == at(c, b))
        };
        // Twins of twins are twins, so the next one is enough.
        let next_twin = |a: usize| (0..a).rev().find(|&b| is_twin(a, b));
        let smaller: Vec<Option<usize>> = (0..size).map(next_twin).collect();
        let all_twins = (0..size).flat_map(|a| (0..a).map(move |b| (b, a))).filter(|&(a, b)| is_twin(a, b));
        let twins = all_twins.filter_map(|(a, b)| Some((small(a)?, small(b)?))).collect();
        let profile = |a: usize| {
            let mut row: Vec<i64> = (0..size).filter(|&b| b != a).map(|b| at(a, b)).collect();
            row.sort_unstable();
            row.push(at(a, a));
            row
        };
        let profiles = (0..size).map(profile).collect();
        let mut finder = Finder { size, matrix, smaller, profiles, steps: 0, found: Vec::new() };
        finder.extend(&mut Vec::new());
        Self { twins, permutations: finder.found }
    }

    /// Returns for each index one that stands for all that it can be exchanged with while the taken ones
    /// stay: the same for all of them.
    pub(super) fn orbits(&self, size: usize, is_taken: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut orbits: Vec<usize> = (0..size).collect();
        let mut join = |a: usize, b: usize| {
            let (kept, gone) = (orbits[a].min(orbits[b]), orbits[a].max(orbits[b]));
            if kept != gone {
                orbits.iter_mut().filter(|orbit| **orbit == gone).for_each(|orbit| *orbit = kept);
            }
        };
        for &(a, b) in &self.twins {
            if !is_taken(a.into()) && !is_taken(b.into()) {
                join(a.into(), b.into());
            }
        }
        for permutation in &self.permutations {
            let images = || permutation.iter().map(|&image| usize::from(image)).enumerate();
            if images().all(|(index, image)| index == image || !is_taken(index)) {
                images().for_each(|(index, image)| join(index, image));
            }
        }
        orbits
    }
}

fn small(index: usize) -> Option<u8> {
    u8::try_from(index).ok()
}

impl Finder<'_> {
    fn at(&self, a: usize, b: usize) -> i64 {
        self.matrix[a * self.size + b]
    }

    /// Extends a list of images, of the first indices, in all ways that keep the matrix. Returns `None`
    /// once there is no time left.
    fn extend(&mut self, images: &mut Vec<u8>) -> Option<()> {
        let index = images.len();
        if index == self.size {
            if images.iter().zip(0..).any(|(&image, index)| usize::from(image) != index) {
                self.found.push(images.clone());
            }
            return (self.found.len() < KEPT_MAX).then_some(());
        }
        for image in 0..self.size {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            if self.fits(images, index, image) {
                images.push(small(image)?);
                let found = self.extend(images);
                images.pop();
                found?;
            }
        }
        Some(())
    }

    fn fits(&self, images: &[u8], index: usize, image: usize) -> bool {
        self.profiles[index] == self.profiles[image]
            && images.iter().enumerate().all(|(other, &there)| {
                let there = usize::from(there);
                there != image
                    && self.at(index, other) == self.at(image, there)
                    && self.at(other, index) == self.at(there, image)
            })
            && self.smaller[index].is_none_or(|twin| usize::from(images[twin]) < image)
    }
}
