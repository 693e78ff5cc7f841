//! A graph as the search wants it, and its reader.

use std::{fmt, fs, path::Path};

use serde::{Deserialize, Serialize};

/// The largest graph that is read, in vertices: as many as the search has room for.
pub(crate) const VERTICES_MAX: usize = 4096;

/// A graph: for each vertex its neighbours, one bit each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Graph {
    vertices: usize,
    words: usize,
    rows: Vec<u64>,
}

impl Graph {
    /// A graph without edges.
    pub(crate) fn new(vertices: usize) -> Self {
        let words = vertices.div_ceil(64);
        Self { vertices, words, rows: vec![0; vertices * words] }
    }

    /// How many vertices it has, numbered from 0.
    pub(crate) fn vertices(&self) -> usize {
        self.vertices
    }

    /// Adds an edge between two different vertices.
    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            self.rows[a * self.words + b / 64] |= 1 << (b % 64);
        }
    }

    /// Whether there is an edge between two vertices.
    pub(crate) fn has_edge(&self, a: usize, b: usize) -> bool {
        self.rows[a * self.words + b / 64] & (1 << (b % 64)) != 0
    }

    /// How many neighbours a vertex has.
    pub(crate) fn degree(&self, vertex: usize) -> usize {
        self.row(vertex).iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The neighbours of a vertex.
    pub(crate) fn row(&self, vertex: usize) -> &[u64] {
        &self.rows[vertex * self.words..][..self.words]
    }

    /// Whether every two of some vertices are connected.
    pub(crate) fn is_clique(&self, vertices: &[usize]) -> bool {
        let pairs = vertices.iter().enumerate();
        pairs.into_iter().all(|(i, &a)| vertices[i + 1..].iter().all(|&b| self.has_edge(a, b)))
    }
}

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    line: usize,
    found: String,
    expected: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, found, expected } = self;
        write!(f, "line {line}: found {found}, expected {expected}")
    }
}

/// Reads a graph from a file in DIMACS format.
///
/// # Errors
/// Says the file, the line, what was found and what was expected.
pub(crate) fn read(file: &Path) -> Result<Graph, String> {
    let name = file.display();
    let bytes = fs::read(file).map_err(|error| format!("{name}: the file cannot be read: {error}"))?;
    // Comments may be of any encoding.
    parse(&String::from_utf8_lossy(&bytes)).map_err(|wrong| format!("{name}: {wrong}"))
}

/// Reads a graph in DIMACS format: `p edge VERTICES EDGES` (or `p col`), then `e A B` for each edge, vertices from 1.
/// Comments (`c`) and weights of vertices (`n`) are passed over.
///
/// # Errors
/// At the first line that is something else.
pub(crate) fn parse(text: &str) -> Result<Graph, Wrong> {
    let mut graph: Option<Graph> = None;
    for (line, words) in text.lines().map(|line| line.split_whitespace()).enumerate() {
        let words: Vec<&str> = words.collect();
        let wrong = |found: &str, expected: &str| Wrong {
            line: line + 1,
            found: format!("{found:?}"),
            expected: expected.to_owned(),
        };
        match (words.as_slice(), &mut graph) {
            ([] | ["c", ..], _) => {}
            ([first, ..], _) if first.starts_with('c') && first.len() > 1 => {}
            (["p", _, vertices, _edges, ..], None) => {
                let vertices = vertices.parse().ok().filter(|&vertices| vertices <= VERTICES_MAX);
                let expected = || wrong(words[2], &format!("a number of vertices, at most {VERTICES_MAX}"));
                graph = Some(Graph::new(vertices.ok_or_else(expected)?));
            }
            (["p", ..], None) => return Err(wrong(&words.join(" "), "p edge VERTICES EDGES")),
            (["p", ..], Some(_)) => return Err(wrong(&words.join(" "), "only one line p")),
            (_, None) => return Err(wrong(&words.join(" "), "p edge VERTICES EDGES before all else")),
            (["n", vertex, weight, ..], Some(graph)) => {
                vertex_of(vertex, graph).ok_or_else(|| wrong(vertex, &range(graph)))?;
                weight.parse::<i64>().map_err(|_| wrong(weight, "a weight, a whole number"))?;
            }
            (["e", a, b, ..], Some(graph)) => {
                let end = |word| vertex_of(word, graph).ok_or_else(|| wrong(word, &range(graph)));
                let (a, b) = (end(a)?, end(b)?);
                if a == b {
                    return Err(wrong(&words.join(" "), "an edge between two different vertices"));
                }
                graph.connect(a, b);
            }
            _ => return Err(wrong(&words.join(" "), "e VERTEX VERTEX, n VERTEX WEIGHT, or a comment: c …")),
        }
    }
    graph.ok_or_else(|| Wrong {
        line: text.lines().count() + 1,
        found: "the end of the file".to_owned(),
        expected: "p edge VERTICES EDGES".to_owned(),
    })
}

fn vertex_of(word: &str, graph: &Graph) -> Option<usize> {
    word.parse::<usize>().ok()?.checked_sub(1).filter(|&vertex| vertex < graph.vertices)
}

fn range(graph: &Graph) -> String {
    format!("a vertex from 1 to {}", graph.vertices)
}
