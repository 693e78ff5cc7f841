//! The largest or heaviest clique of a graph: branching on a vertex, bounding by colours (after E. Tomita and
//! T. Seki, 2003, with the bit sets of P. San Segundo et al., 2011).
//!
//! A **colouring** gives neighbours different colours, so all vertices of a clique have different colours: it
//! has at most as many vertices as there are colours. If vertices have weights, each colour counts as much as
//! its lightest vertex, and the rest of the others' weight goes to further colours (S. Held, W. Cook and E.
//! Sewell, 2012). Vertices not covered by colours alone are compared with them by propagation: a vertex that no
//! clique can have together with one vertex of each of some colours costs nothing (C. Li and Z. Quan, 2010).
//!
//! Only uncovered vertices are tried, those with the highest bounds first; the first bound that is
//! too low to improve on the best clique known ends the level, since the later ones are no higher.

mod classes;
mod colour;
mod graph;
mod local;
mod order;
mod penalty;
mod program;
mod set;

use bnb_framework::{Children, Goal, Hooks, InPlace, Moves, Problem, Tree, cli::DisplaySolution};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::{classes::Classes, set::Set};
pub use self::{
    graph::{FILE_BYTES_MAX, Graph, VERTICES_MAX, parse},
    order::order,
    program::main,
};

/// The largest clique of a graph with at most `64 * W` vertices; the heaviest, if they are `WEIGHTED`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Graph", into = "Graph")]
pub struct MaxClique<const W: usize, const WEIGHTED: bool> {
    graph: Graph,
    /// The vertices in the order of the search, those with few neighbours last.
    order: Vec<usize>,
    /// The neighbours of each, as positions in the order.
    near: Vec<Set<W>>,
    /// The weight of each vertex, in this order; 1 if they are not `WEIGHTED`.
    weights: Vec<u32>,
}

/// A clique that can be extended: one for the whole search, changed in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Clique<const W: usize> {
    /// Its vertices, as positions in the order.
    vertices: Vec<u16>,
    weight: u32,
    /// No clique that extends it weighs more.
    bound: u32,
    /// The weight of the best clique known when the bound was last computed; negative if there was none.
    best: i64,
    /// The vertices that may extend it: those connected to all its vertices.
    open: Set<W>,
    /// The vertices to branch on, with the bounds of their subtrees, the worst first; all levels are
    /// stacked on each other.
    listed: Vec<(u16, u32)>,
    /// Used while vertices are listed.
    #[serde(skip)]
    classes: Classes<W>,
}

/// The vertices of a level that were not tried yet: those listed from `first` up to, but excluding, `next`,
/// to be tried from the last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Untried<const W: usize> {
    first: usize,
    next: usize,
    /// The end of the level's list.
    end: usize,
    /// The vertices that may extend the clique of the level, except those already tried.
    open: Set<W>,
}

impl<const W: usize, const WEIGHTED: bool> MaxClique<W, WEIGHTED> {
    /// Creates the problem for a graph.
    ///
    /// # Errors
    /// Fails if the graph has more than `64 * W` vertices.
    pub fn new(graph: Graph) -> Result<Self, String> {
        let vertices = graph.vertices();
        if vertices > 64 * W || vertices > usize::from(u16::MAX) {
            return Err(format!("{vertices} vertices, but room for {}", 64 * W));
        }
        let order = order(&graph);
        let row = |&vertex: &usize| {
            (0..vertices).filter(|&place| graph.has_edge(vertex, order[place])).collect::<Set<W>>()
        };
        let near = order.iter().map(row).collect();
        let weights = order.iter().map(|&vertex| if WEIGHTED { graph.weight(vertex) } else { 1 }).collect();
        Ok(Self { graph, order, near, weights })
    }
}

impl<const W: usize, const WEIGHTED: bool> MaxClique<W, WEIGHTED> {
    /// Returns a good clique and its cost, after a fixed amount of work.
    pub fn start(&self) -> Option<(u32, Vec<usize>)> {
        let mut clique = self.construct(0, &|| false);
        for seed in 0..START_ROUNDS {
            clique = self.improve(&clique, seed, &|| false).unwrap_or(clique);
        }
        self.cost_of(&clique).map(|cost| (cost, clique))
    }
}

/// The number of rounds of local search before the search starts.
const START_ROUNDS: u64 = 6;

/// Converts a number of vertices, or a position, to the type that the search stores.
fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

impl<const W: usize, const WEIGHTED: bool> Tree for MaxClique<W, WEIGHTED> {
    type State = Clique<W>;
    type Children = Untried<W>;

    fn root(&self) -> Clique<W> {
        let open = (0..self.order.len()).collect();
        let bound = self.weights.iter().sum();
        Clique {
            vertices: Vec::new(),
            weight: 0,
            bound,
            best: -1,
            open,
            listed: Vec::new(),
            classes: Classes::default(),
        }
    }

    /// Lists the vertices that may lead to a better clique than the best.
    fn branch(&self, clique: &mut Clique<W>) -> Untried<W> {
        let first = clique.listed.len();
        self.list(clique);
        let end = clique.listed.len();
        Untried { first, next: end, end, open: clique.open }
    }
}

impl<const W: usize, const WEIGHTED: bool> Children<MaxClique<W, WEIGHTED>> for Untried<W> {
    type Step = Moves;

    fn next(&mut self, problem: &MaxClique<W, WEIGHTED>, parent: &Clique<W>) -> Option<Clique<W>> {
        let mut child = parent.clone();
        self.descend(problem, &mut child).then_some(child)
    }

    fn split(&mut self, _: &MaxClique<W, WEIGHTED>, clique: &Clique<W>) -> Option<Self> {
        let middle = self.first + (self.next - self.first).div_ceil(2);
        let mut away = Self { next: middle, ..self.clone() };
        for &(vertex, _) in &clique.listed[middle..self.next] {
            away.open.remove(usize::from(vertex));
        }
        self.first = middle;
        (away.first < away.next).then_some(away)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first == self.next
    }

    fn is_single(&self, _: &MaxClique<W, WEIGHTED>, _: &Clique<W>) -> bool {
        self.next - self.first == 1
    }

    fn count(&self, _: &MaxClique<W, WEIGHTED>, _: &Clique<W>) -> u64 {
        (self.next - self.first) as u64
    }
}

impl<const W: usize, const WEIGHTED: bool> InPlace<MaxClique<W, WEIGHTED>> for Untried<W> {
    #[inline]
    fn descend(&mut self, problem: &MaxClique<W, WEIGHTED>, clique: &mut Clique<W>) -> bool {
        if self.next <= self.first {
            return false;
        }
        self.next -= 1;
        let (vertex, bound) = clique.listed[self.next];
        clique.vertices.push(vertex);
        clique.weight += problem.weights[usize::from(vertex)];
        clique.bound = bound;
        clique.open = self.open.common(&problem.near[usize::from(vertex)]);
        self.open.remove(usize::from(vertex));
        true
    }

    #[inline]
    fn ascend(&self, problem: &MaxClique<W, WEIGHTED>, clique: &mut Clique<W>) {
        if let Some(vertex) = clique.vertices.pop() {
            clique.weight -= problem.weights[usize::from(vertex)];
        }
        clique.listed.truncate(self.end);
    }
}

impl<const W: usize, const WEIGHTED: bool> Problem for MaxClique<W, WEIGHTED> {
    /// Vertices, or their weight.
    type Cost = u32;
    /// The numbers of the vertices, from 0.
    type Solution = Vec<usize>;
    const GOAL: Goal = Goal::Maximise;
    const WORST_LAST: bool = true;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        // Cliques that only vertices tried before could extend may or may not be reported.
        .with_every_solution(|_| None)
        .construct(|problem, seed, stops| Some(problem.construct(seed, stops)))
        .improve(|problem, clique, seed, stops| problem.improve(clique, seed, stops));

    fn leaf(&self, clique: &Clique<W>) -> Option<u32> {
        clique.open.is_empty().then_some(clique.weight)
    }

    fn bound(&self, clique: &mut Clique<W>, best: Option<u32>) -> Option<u32> {
        clique.best = best.map_or(-1, i64::from);
        Some(clique.bound)
    }

    fn solution(&self, clique: &Clique<W>) -> Vec<usize> {
        let mut vertices: Vec<usize> =
            clique.vertices.iter().map(|&place| self.order[usize::from(place)]).collect();
        vertices.sort_unstable();
        vertices
    }

    fn cost_of(&self, vertices: &Vec<usize>) -> Option<u32> {
        let sound = vertices.is_sorted_by(|a, b| a < b) && vertices.iter().all(|&v| v < self.order.len());
        let weight = |&vertex: &usize| if WEIGHTED { self.graph.weight(vertex) } else { 1 };
        (sound && self.graph.is_clique(vertices)).then(|| vertices.iter().map(weight).sum())
    }
}

impl<const W: usize, const WEIGHTED: bool> DisplaySolution for MaxClique<W, WEIGHTED> {
    const COST: &'static str = if WEIGHTED { "weight" } else { "vertices" };
    const SOLUTION: &'static str = "clique";

    /// Vertices are displayed from 1, as in the files.
    fn show(&self, vertices: &Vec<usize>) -> (String, Value) {
        let vertices: Vec<usize> = vertices.iter().map(|vertex| vertex + 1).collect();
        (format!("{vertices:?}"), json!(vertices))
    }
}

impl<const W: usize, const WEIGHTED: bool> TryFrom<Graph> for MaxClique<W, WEIGHTED> {
    type Error = String;

    fn try_from(graph: Graph) -> Result<Self, String> {
        Self::new(graph)
    }
}

impl<const W: usize, const WEIGHTED: bool> From<MaxClique<W, WEIGHTED>> for Graph {
    fn from(problem: MaxClique<W, WEIGHTED>) -> Self {
        problem.graph
    }
}
