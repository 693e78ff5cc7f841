//! Unbalanced Tree Search (Olivier et al., LCPC 2006): trees whose shape follows from SHA-1, with published sizes. The geometric
//! trees of fixed shape and the binomial ones.

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};
use taskwork::{
    Context, Job, Outcome, Task,
    cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown},
};

/// A tree.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    shape: Shape,
    /// The seed.
    seed: u32,
    /// How many more hashes are taken at each node for nothing but the time they take.
    spin: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Shape {
    /// Down to a depth every node has a geometrically distributed number of children, this one in the mean.
    Geometric { mean: f64, depth: u32 },
    /// The root has so many children; every other node has `children` of them with a probability, and otherwise none.
    Binomial { root: u32, probability: f64, children: u32 },
}

/// A tree by its name: what it is, and how many nodes it has.
pub fn named(name: &str) -> Option<(Tree, u64)> {
    let geometric = |depth, seed| Tree { shape: Shape::Geometric { mean: 4.0, depth }, seed, spin: 0 };
    let binomial = |probability, children, seed| Tree {
        shape: Shape::Binomial { root: 2000, probability, children },
        seed,
        spin: 0,
    };
    Some(match name {
        "T1" => (geometric(10, 19), 4_130_071),
        "T1L" => (geometric(13, 29), 102_181_082),
        "T3" => (binomial(0.124_875, 8, 42), 4_112_897),
        "T3L" => (binomial(0.200_014, 5, 7), 111_345_631),
        _ => return None,
    })
}

/// A node of a tree: its random state and its depth.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Node {
    state: [u8; 20],
    depth: u32,
}

/// No node has more.
const CHILDREN_MAX: u32 = 100;

impl Tree {
    fn root(&self) -> Node {
        let mut bytes = [0; 20];
        bytes[16..].copy_from_slice(&self.seed.to_be_bytes());
        Node { state: Sha1::digest(bytes).into(), depth: 0 }
    }

    fn children(&self, node: &Node) -> u32 {
        let mut last = [0; 4];
        last.copy_from_slice(&node.state[16..]);
        let share = f64::from(u32::from_be_bytes(last) & 0x7fff_ffff) / f64::from(1_u32 << 31);
        match self.shape {
            Shape::Geometric { depth, .. } if node.depth >= depth => 0,
            Shape::Geometric { mean, .. } => {
                let children = ((1.0 - share).ln() / (1.0 - 1.0 / (1.0 + mean)).ln()).floor();
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small and not negative"
                )]
                let children = children as u32;
                children.min(CHILDREN_MAX)
            }
            Shape::Binomial { root, .. } if node.depth == 0 => root,
            Shape::Binomial { probability, children, .. } => {
                if share < probability {
                    children
                } else {
                    0
                }
            }
        }
    }
}

fn child(parent: &Node, number: u32) -> Node {
    let mut hash = Sha1::new();
    hash.update(parent.state);
    hash.update(number.to_be_bytes());
    Node { state: hash.finalize().into(), depth: parent.depth + 1 }
}

/// A part of a tree: nodes with the children of each that are still to be visited.
#[derive(Debug, Serialize, Deserialize)]
pub struct Search {
    /// The root, until it is visited.
    root: Option<Node>,
    levels: Vec<(Node, std::ops::Range<u32>)>,
}

impl Search {
    fn new(tree: &Tree) -> Self {
        Self { root: Some(tree.root()), levels: Vec::new() }
    }

    fn next(&mut self) -> Option<Node> {
        if let Some(root) = self.root.take() {
            return Some(root);
        }
        while let Some((parent, left)) = self.levels.last_mut() {
            if let Some(number) = left.next() {
                return Some(child(parent, number));
            }
            self.levels.pop();
        }
        None
    }

    /// Visits a node. False when there is none left.
    fn step(&mut self, tree: &Tree) -> bool {
        let Some(node) = self.next() else { return false };
        for _ in 0..tree.spin {
            std::hint::black_box(Sha1::digest(node.state));
        }
        let children = tree.children(&node);
        if children > 0 {
            self.levels.push((node, 0..children));
        }
        true
    }
}

/// The number of nodes, by a plain loop.
pub fn count(tree: &Tree) -> u64 {
    let mut search = Search::new(tree);
    let mut nodes = 0;
    while search.step(tree) {
        nodes += 1;
    }
    nodes
}

/// How many nodes are visited between two looks at what others want.
const NODES_BETWEEN: u64 = 64;

impl Task for Search {
    type Shared = Tree;
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let tree = cx.shared();
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            let mut visited = 0;
            while visited < NODES_BETWEEN && self.step(tree) {
                visited += 1;
            }
            *cx.output() += visited;
            cx.worked(visited);
            if visited < NODES_BETWEEN {
                return Outcome::Complete;
            }
            cx.potential_split(self);
        }
    }

    /// Half of the shallowest level that has any left.
    fn split(&mut self, _: &Tree) -> Option<Self> {
        let (parent, left) = self.levels.iter_mut().find(|(_, left)| left.len() > 1)?;
        let middle = left.start + (left.end - left.start) / 2;
        let away = middle..left.end;
        left.end = middle;
        Some(Self { root: None, levels: vec![(parent.clone(), away)] })
    }
}

/// What the program `uts` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name of a published tree: T1, T3, T1L, T3L.
    tree: String,
    /// How many more hashes are taken at each node for nothing but the time they take.
    #[arg(long, default_value_t = 0)]
    spin: u32,
}

/// The program `uts`.
#[derive(Debug)]
pub struct Uts;

impl Program for Uts {
    const NAME: &'static str = "uts";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the nodes of a published unbalanced tree";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Search>("uts");
    }

    fn prepare(arguments: Arguments, _: Place) -> Result<Prepared, Failure> {
        let unknown = || Failure::usage(format!("there is no tree {:?}: T1, T3, T1L or T3L", arguments.tree));
        let (mut tree, _) = named(&arguments.tree).ok_or_else(unknown)?;
        tree.spin = arguments.spin;
        let job = Job::new(Search::new(&tree), tree);
        Ok(Prepared::new("uts", job, |report| {
            let json = serde_json::json!({
                "states": report.output, "finished": report.finished, "figures": report.figures,
            });
            Ok(Shown { text: format!("{} nodes", report.output), json, complete: report.finished })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_the_published_ones() {
        for name in ["T1", "T3"] {
            let (tree, size) = named(name).unwrap();
            assert_eq!(count(&tree), size, "{name}");
        }
    }
}
