//! A graph as the search wants it, and its reader.

use bnb_framework::words::{ReadError, Words};
use serde::{Deserialize, Serialize};

/// The largest graph that is read, in vertices: as many as the search has room for.
pub const VERTICES_MAX: usize = 4096;

/// The largest file that is read, in bytes: as many edges as there can be, each in both directions.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// A graph: for each vertex its neighbours, one bit each, and its weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    vertices: usize,
    words: usize,
    rows: Vec<u64>,
    weights: Vec<u32>,
}

impl Graph {
    /// A graph without edges.
    pub fn new(vertices: usize) -> Self {
        let words = vertices.div_ceil(64);
        Self { vertices, words, rows: vec![0; vertices * words], weights: vec![1; vertices] }
    }

    /// How many vertices it has, numbered from 0.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// Adds an edge between two different vertices.
    pub fn connect(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            self.rows[a * self.words + b / 64] |= 1 << (b % 64);
        }
    }

    /// Whether there is an edge between two vertices.
    pub fn has_edge(&self, a: usize, b: usize) -> bool {
        self.rows[a * self.words + b / 64] & (1 << (b % 64)) != 0
    }

    /// The weight of a vertex: 1 unless another was set.
    pub fn weight(&self, vertex: usize) -> u32 {
        self.weights[vertex]
    }

    /// How many neighbours a vertex has.
    pub fn degree(&self, vertex: usize) -> usize {
        self.row(vertex).iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The neighbours of a vertex.
    pub fn row(&self, vertex: usize) -> &[u64] {
        &self.rows[vertex * self.words..][..self.words]
    }

    /// Whether every two of some vertices are connected.
    pub fn is_clique(&self, vertices: &[usize]) -> bool {
        let pairs = vertices.iter().enumerate();
        pairs.into_iter().all(|(i, &a)| vertices[i + 1..].iter().all(|&b| self.has_edge(a, b)))
    }
}

/// The largest weight: those of all vertices together stay within 32 bits.
const WEIGHT_MAX: u32 = 1_000_000;

/// Reads a graph in DIMACS format: `p edge VERTICES EDGES` (or `p col`), then `e A B` for each edge and `n A WEIGHT` for vertices that count
/// other than 1, vertices from 1. Comments (`c`) and what describes the graph otherwise (`d`, `v`, `x`) are passed over.
///
/// # Errors
/// Says the file, the line, what was found and what was expected.
pub fn parse(file: &str, text: &str) -> Result<Graph, ReadError> {
    const LINES: &str = "e VERTEX VERTEX, n VERTEX WEIGHT, or a comment: c …";
    let mut words = Words::new(file, text);
    let mut graph: Option<Graph> = None;
    while !words.is_at_end() {
        match (words.word(LINES)?, &mut graph) {
            ("d" | "v" | "x", _) => words.skip_line(),
            (comment, _) if comment.starts_with('c') => words.skip_line(),
            ("p", None) => {
                words.word_here("p edge VERTICES EDGES")?;
                let vertices = words.number_here("a number of vertices", 0..=VERTICES_MAX)?;
                words.skip_line();
                graph = Some(Graph::new(vertices));
            }
            ("p", Some(_)) => return Err(words.wrong("p", "only one line p")),
            (other, None) => return Err(words.wrong(other, "p edge VERTICES EDGES before all else")),
            ("n", Some(graph)) => {
                let vertex = words.number_here("a vertex", 1..=graph.vertices)?;
                graph.weights[vertex - 1] = words.number_here("a weight", 0..=WEIGHT_MAX)?;
                words.skip_line();
            }
            ("e", Some(graph)) => {
                let a = words.number_here("a vertex", 1..=graph.vertices)?;
                let b = words.number_here("a vertex", 1..=graph.vertices)?;
                if a == b {
                    return Err(words.wrong(&format!("e {a} {b}"), "an edge between two different vertices"));
                }
                graph.connect(a - 1, b - 1);
                words.skip_line();
            }
            (other, _) => return Err(words.wrong(other, LINES)),
        }
    }
    graph.ok_or_else(|| words.missing("p edge VERTICES EDGES"))
}
