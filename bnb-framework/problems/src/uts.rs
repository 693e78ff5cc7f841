//! Unbalanced Tree Search (Olivier et al., LCPC 2006): trees with shapes derived from SHA-1, and published
//! sizes.

use std::{ops::Range, process::ExitCode};

use bnb_framework::{
    Children, Copies, Enumerate, Output, Tree,
    cli::{self, Counts, Failure},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha1::block_api::compress;

/// A tree.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Uts {
    /// The branching rule.
    pub shape: Shape,
    /// The seed.
    pub seed: u32,
    /// The number of extra hashes at each node, which only take time.
    pub spin: u32,
    /// The time to sleep at each node, in microseconds: work that needs no processor.
    pub wait_us: u64,
}

/// A branching rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    /// A geometrically distributed number of children.
    Geometric(Geometric),
    /// The root has a fixed number of children; every other node has some with a given probability, and
    /// otherwise none.
    Binomial {
        /// The number of children of the root.
        root: u32,
        /// The children of every other node.
        some: BinomialChildren,
    },
    /// Geometric in the upper half of the depth; below that, like the inner nodes of a binomial tree.
    Hybrid(Geometric, BinomialChildren),
}

/// A geometrically distributed number of children.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Geometric {
    /// The mean number of children at the root.
    pub mean: f64,
    /// The depth that the mean depends on.
    pub depth: u32,
    /// The dependence of the mean on the depth.
    pub decay: Decay,
}

/// The dependence of the mean number of children on the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decay {
    /// Constant down to a depth, below that none.
    Fixed,
    /// Falls linearly to zero.
    Linear,
    /// Rises and falls.
    Cyclic,
}

/// A number of children with a probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BinomialChildren {
    /// The probability.
    pub probability: f64,
    /// The number of children.
    pub children: u32,
}

/// A node of a tree: its random state, its depth, and its number of children once it was branched.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Node {
    state: [u32; 5],
    depth: u32,
    children: u32,
}

/// The counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Nodes.
    pub nodes: u64,
    /// Nodes without children.
    pub leaves: u64,
    /// The largest depth.
    pub depth: u32,
}

/// The maximum number of children of a node, except for the root of a binomial tree.
const CHILDREN_MAX: u32 = 100;

/// A block of SHA-1 in a cache line of its own. Otherwise it is a matter of the stack's depth whether it lies
/// across two, and then a search takes a quarter more time: the block is read in wider pieces than it is written.
#[repr(align(64))]
struct Block([u8; 64]);

/// Computes the SHA-1 of up to 24 bytes, given as words: a single block.
#[inline]
fn sha1(words: [u32; 6], bytes: u8) -> [u32; 5] {
    let mut aligned = Block([0; 64]);
    let Block(block) = &mut aligned;
    for (place, word) in block.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    block[usize::from(bytes)] = 0x80;
    block[63] = bytes * 8;
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    compress(&mut state, std::slice::from_ref(block));
    state
}

impl Uts {
    /// Returns a published tree by its name.
    pub fn named(name: &str) -> Option<Self> {
        let geometric = |decay, mean, depth| Geometric { mean, depth, decay };
        let some = |probability, children| BinomialChildren { probability, children };
        let binomial =
            |probability, children| Shape::Binomial { root: 2000, some: some(probability, children) };
        let (shape, seed) = match name {
            "T1" => (Shape::Geometric(geometric(Decay::Fixed, 4.0, 10)), 19),
            "T2" => (Shape::Geometric(geometric(Decay::Cyclic, 6.0, 16)), 502),
            "T3" => (binomial(0.124_875, 8), 42),
            "T4" => (Shape::Hybrid(geometric(Decay::Linear, 6.0, 16), some(0.234_375, 4)), 1),
            "T5" => (Shape::Geometric(geometric(Decay::Linear, 4.0, 20)), 34),
            "T1L" => (Shape::Geometric(geometric(Decay::Fixed, 4.0, 13)), 29),
            "T2L" => (Shape::Geometric(geometric(Decay::Cyclic, 7.0, 23)), 220),
            "T3L" => (binomial(0.200_014, 5), 7),
            "T1XL" => (Shape::Geometric(geometric(Decay::Fixed, 4.0, 15)), 29),
            "T1XXL" => (Shape::Geometric(geometric(Decay::Fixed, 4.0, 15)), 19),
            "T3XXL" => (binomial(0.499_995, 2), 316),
            _ => return None,
        };
        Some(Self { shape, seed, spin: 0, wait_us: 0 })
    }

    /// Returns a geometric tree with another depth, or `None` if the tree is of another kind.
    pub fn to_depth(self, depth: u32) -> Option<Self> {
        match self.shape {
            Shape::Geometric(geometric) => {
                Some(Self { shape: Shape::Geometric(Geometric { depth, ..geometric }), ..self })
            }
            Shape::Binomial { .. } | Shape::Hybrid(..) => None,
        }
    }

    /// Returns the number of children of a node.
    #[inline]
    pub fn children(&self, node: &Node) -> u32 {
        // Convert 31 random bits to a share of one.
        let share = f64::from(node.state[4] & 0x7fff_ffff) / f64::from(1_u32 << 31);
        match &self.shape {
            Shape::Geometric(geometric) => geometric.children(node.depth, share),
            Shape::Hybrid(geometric, some) => {
                if 2 * node.depth < geometric.depth {
                    geometric.children(node.depth, share)
                } else {
                    some.children(share)
                }
            }
            Shape::Binomial { root, .. } if node.depth == 0 => *root,
            Shape::Binomial { some, .. } => some.children(share),
        }
    }
}

impl Geometric {
    #[inline]
    fn children(&self, depth: u32, share: f64) -> u32 {
        let mean = match self.decay {
            _ if depth == 0 => self.mean,
            Decay::Fixed if depth < self.depth => self.mean,
            Decay::Cyclic if depth <= self.depth.saturating_mul(5) => {
                self.mean.powf((2.0 * std::f64::consts::PI * f64::from(depth) / f64::from(self.depth)).sin())
            }
            Decay::Fixed | Decay::Cyclic => return 0,
            Decay::Linear => self.mean * (1.0 - f64::from(depth) / f64::from(self.depth)),
        };
        let children = ((1.0 - share).ln() / (1.0 - 1.0 / (1.0 + mean)).ln()).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let children = children as u32;
        children.min(CHILDREN_MAX)
    }
}

impl BinomialChildren {
    #[inline]
    fn children(&self, share: f64) -> u32 {
        if share < self.probability { self.children } else { 0 }
    }
}

impl Node {
    /// Creates a child of a node.
    #[inline]
    #[must_use]
    pub fn child(&self, number: u32) -> Self {
        let mut words = [0, 0, 0, 0, 0, number];
        words[..5].copy_from_slice(&self.state);
        Self { state: sha1(words, 24), depth: self.depth + 1, children: 0 }
    }
}

/// The numbers of the children of a node that were not visited yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Numbers(Range<u32>);

impl Uts {
    /// Returns the root of the tree.
    pub fn first(&self) -> Node {
        Node { state: sha1([0, 0, 0, 0, self.seed, 0], 20), depth: 0, children: 0 }
    }
}

impl Tree for Uts {
    type State = Node;
    type Children = Numbers;

    fn root(&self) -> Node {
        self.first()
    }

    #[inline]
    fn branch(&self, node: &mut Node) -> Numbers {
        for _ in 0..self.spin {
            std::hint::black_box(node.child(0));
        }
        if self.wait_us > 0 {
            std::thread::sleep(std::time::Duration::from_micros(self.wait_us));
        }
        node.children = self.children(node);
        Numbers(0..node.children)
    }
}

impl Children<Uts> for Numbers {
    type Step = Copies;

    #[inline]
    fn next(&mut self, _: &Uts, parent: &Node) -> Option<Node> {
        self.0.next().map(|number| parent.child(number))
    }

    fn split(&mut self, _: &Uts, _: &Node) -> Option<Self> {
        let middle = self.0.start + (self.0.end - self.0.start) / 2;
        let away = middle..self.0.end;
        self.0.end = middle;
        (!away.is_empty()).then_some(Self(away))
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn is_single(&self, _: &Uts, _: &Node) -> bool {
        self.0.len() == 1
    }
}

impl Enumerate for Uts {
    type Output = Sizes;

    #[inline]
    fn visit(&self, node: &Node, counts: &mut Sizes) {
        counts.nodes += 1;
        counts.leaves += u64::from(node.children == 0);
        counts.depth = counts.depth.max(node.depth);
    }
}

impl Output for Sizes {
    fn merge(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.leaves += other.leaves;
        self.depth = self.depth.max(other.depth);
    }
}

/// The choice of the tree.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name of a published tree: T1 to T5, T1L, T2L, T3L, T1XL, T1XXL or T3XXL.
    tree: String,
    /// Another depth for a geometric tree.
    #[arg(long)]
    depth: Option<u32>,
    /// The number of extra hashes at each node, which only take time.
    #[arg(long, default_value_t = 0)]
    spin: u32,
    /// The time to sleep at each node, in microseconds: work that needs no processor.
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
}

impl Counts for Uts {
    const NAME: &'static str = "uts";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the nodes of a published unbalanced tree";
    type Arguments = Arguments;

    fn from_arguments(Arguments { tree, depth, spin, wait_us }: Arguments) -> Result<Self, Failure> {
        let unknown =
            || Failure::usage(format!("there is no tree {tree:?}: T1 to T5, T1L, T2L, T3L, T1XL, …"));
        let uts = Self { spin, wait_us, ..Self::named(&tree).ok_or_else(unknown)? };
        let Some(depth) = depth else { return Ok(uts) };
        let other = || Failure::usage(format!("{tree} is no geometric tree: it has no depth to be given"));
        uts.to_depth(depth).ok_or_else(other)
    }

    fn show(Sizes { nodes, leaves, depth }: &Sizes) -> (String, Value) {
        let text = format!("{nodes} nodes, {leaves} leaves, depth {depth}");
        (text, json!({ "nodes": nodes, "leaves": leaves, "depth": depth }))
    }
}

/// Runs the program `uts`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    cli::main_counting::<Uts>()
}
