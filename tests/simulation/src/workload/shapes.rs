//! The shapes of the trees.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use super::{Fork, tour::Tour, workflow::Recipe};

/// The shape of a tree, which determines it completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// Every state above this depth has 0 to 2 · `mean` children, depending on its number.
    Random { seed: u64, mean: u64, depth: u32 },
    /// Unbalanced Tree Search (Olivier et al., LCPC 2006), geometric with fixed shape: the published trees
    /// and similar ones.
    Uts { seed: u32, mean: f64, depth: u32 },
    /// A chain of states: nothing can ever be split off.
    Chain { length: u32 },
    /// A star: all states are children of the root.
    Star { leaves: u32 },
    /// A star in which a chain with nearly all the work hangs below one leaf.
    Lopsided { leaves: u32, length: u32 },
    /// As `Random`, but most tasks refuse to be split.
    Refusing { seed: u64, mean: u64, depth: u32 },
    /// As `Random`, but each state has this many bytes.
    Heavy { seed: u64, mean: u64, depth: u32, bytes: usize },
    /// As `Random`, but the state with this number is never visited: a task that visits it panics, or dies
    /// with its machine.
    Deadly { seed: u64, mean: u64, depth: u32, state: u64, panics: bool, forks: bool },
    /// As `Random`, but walks spawn others and wait for them.
    Forking { seed: u64, mean: u64, depth: u32 },
    /// The shortest round trip, by branch and bound.
    Tour(Tour),
    /// No tree, but a workflow.
    Workflow(Recipe),
}

/// The minimum depth of trees for large clusters.
const DEEP: u32 = 9;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Its number, unique in the whole tree.
    pub(crate) number: u64,
    pub(crate) depth: u32,
    /// The seed of its children, if it is not the state's number.
    pub(crate) seed: u64,
    /// The visited towns, or the state of a hash.
    pub(crate) path: Vec<u8>,
}

/// Mixes two numbers into one that depends on all their bits (the finaliser of splitmix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Shape {
    pub(crate) fn root(&self) -> State {
        self.root_numbered(0)
    }

    /// Returns the root of one of several trees of the same shape. All their states have different numbers.
    pub(crate) fn root_numbered(&self, number: u64) -> State {
        let (seed, path) = match self {
            Self::Random { seed, .. }
            | Self::Refusing { seed, .. }
            | Self::Heavy { seed, .. }
            | Self::Forking { seed, .. }
            | Self::Deadly { seed, .. } => (*seed, Vec::new()),
            Self::Uts { seed, .. } => {
                let mut bytes = [0; 20];
                bytes[16..].copy_from_slice(&seed.to_be_bytes());
                (0, Sha1::digest(bytes).to_vec())
            }
            Self::Tour(_) => (0, vec![0]),
            Self::Chain { .. } | Self::Star { .. } | Self::Lopsided { .. } | Self::Workflow(_) => {
                (0, Vec::new())
            }
        };
        State { number: mix(1 + (number << 32), seed), depth: 0, seed, path }
    }

    /// Returns the children of a state. Not for [`Tour`](Self::Tour), whose children depend on the incumbent.
    pub(crate) fn children(&self, state: &State) -> Vec<State> {
        let count = match *self {
            Self::Random { mean, depth, .. }
            | Self::Refusing { mean, depth, .. }
            | Self::Heavy { mean, depth, .. }
            | Self::Forking { mean, depth, .. }
            | Self::Deadly { mean, depth, .. } => match state.depth {
                0 => 2 * mean,
                at if at >= depth => 0,
                _ => mix(state.number, 7) % (2 * mean + 1),
            },
            Self::Uts { mean, depth, .. } => return uts(state, mean, depth),
            Self::Chain { length } => u64::from(state.depth + 1 < length),
            Self::Star { leaves } => {
                if state.depth == 0 {
                    u64::from(leaves)
                } else {
                    0
                }
            }
            Self::Lopsided { leaves, length } => match state.depth {
                0 => u64::from(leaves),
                1 => u64::from(state.seed == 0),
                at => u64::from(at < length),
            },
            Self::Tour(_) | Self::Workflow(_) => 0,
        };
        let bytes = if let Self::Heavy { bytes, .. } = self { *bytes } else { 0 };
        (0..count).map(|child| State { path: vec![1; bytes], ..state.child(child) }).collect()
    }
}

impl Shape {
    /// Makes a random tree deadly, in a state that depends on `place`.
    pub(crate) fn deadly(seed: u64, mean: u64, depth: u32, place: u64, panics: bool) -> Self {
        let forks = panics && mix(seed, 5).is_multiple_of(2);
        let tree = Self::Random { seed, mean, depth };
        let mut state = tree.root();
        for level in 0..=place % u64::from(depth) {
            let mut children = tree.children(&state);
            if children.is_empty() {
                break;
            }
            let which = mix(place, level) % children.len() as u64;
            state = children.swap_remove(usize::try_from(which).unwrap_or(0));
        }
        Self::Deadly { seed, mean, depth, state: state.number, panics, forks }
    }

    /// Returns the tree whose walks spawn others, for some of the random trees.
    pub(crate) fn or_forking(self) -> Self {
        match self {
            Self::Random { seed, mean, depth } if mix(seed, 3).is_multiple_of(3) => {
                Self::Forking { seed, mean, depth }
            }
            other => other,
        }
    }

    /// Returns whether a job of this shape has companions. Trees for large clusters have none, since each of them
    /// would write to all others.
    pub(crate) fn has_companions(&self) -> bool {
        match self {
            Self::Deadly { .. } => true,
            Self::Random { depth: DEEP.., .. } => false,
            _ => self.root().number % 3 == 1,
        }
    }

    /// Returns the action of a walk after a state with children.
    pub(super) fn fork(&self, number: u64) -> Fork {
        if !matches!(self, Self::Forking { .. } | Self::Deadly { forks: true, .. }) {
            return Fork::No;
        }
        match mix(number, 13) % 8 {
            0 | 1 => Fork::All,
            2 => Fork::Later,
            3 => Fork::Never,
            4 => Fork::Sibling,
            5 => Fork::Outside,
            _ => Fork::No,
        }
    }
}

impl State {
    pub(super) fn child(&self, which: u64) -> Self {
        Self { number: mix(self.number, which + 1), depth: self.depth + 1, seed: which, path: Vec::new() }
    }
}

/// Returns the children of a node of a UTS tree; their number follows from the last 31 bits of its hash.
fn uts(node: &State, mean: f64, depth: u32) -> Vec<State> {
    if node.depth >= depth {
        return Vec::new();
    }
    let last = node.path.last_chunk().copied().map_or(0, u32::from_be_bytes);
    let share = f64::from(last & 0x7fff_ffff) / f64::from(1_u32 << 31);
    let children = ((1.0 - share).ln() / (1.0 - 1.0 / (1.0 + mean)).ln()).floor().min(100.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
    let children = children as u32;
    let child = |number: u32| {
        let mut hash = Sha1::new();
        hash.update(&node.path);
        hash.update(number.to_be_bytes());
        State { path: hash.finalize().to_vec(), ..node.child(u64::from(number)) }
    };
    (0..children).map(child).collect()
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { .. } => f.write_str("a random tree"),
            Self::Uts { depth, .. } => write!(f, "a UTS tree of depth {depth}"),
            Self::Chain { length } => write!(f, "a chain of {length}"),
            Self::Star { leaves } => write!(f, "a star of {leaves}"),
            Self::Lopsided { length, .. } => write!(f, "one leaf with a chain of {length}"),
            Self::Refusing { .. } => f.write_str("a random tree whose tasks mostly refuse to split"),
            Self::Heavy { bytes, .. } => write!(f, "a random tree whose states take {bytes} bytes"),
            Self::Deadly { forks: true, .. } => {
                f.write_str("a random tree with a state that panics, whose walks spawn others")
            }
            Self::Deadly { panics: true, .. } => f.write_str("a random tree with a state that panics"),
            Self::Deadly { .. } => f.write_str("a random tree with a state that kills its machine"),
            Self::Forking { .. } => f.write_str("a random tree whose walks spawn others and wait for them"),
            Self::Workflow(recipe) => write!(f, "{recipe}"),
            Self::Tour(tour) => write!(f, "the shortest tour of {} towns", tour.towns()),
        }
    }
}
