//! A graph in the representation that the search needs, and its reader.

use bnb_framework::parse::{ReadError, Words};
use serde::{Deserialize, Serialize};

/// The maximum number of vertices of a graph, limited by the bit sets of the search.
pub const VERTICES_MAX: usize = 4096;

/// The maximum size of a file, in bytes: enough for all possible edges, each in both directions.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// A graph: the neighbours of each vertex, one bit each, and its weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    vertices: usize,
    words: usize,
    rows: Vec<u64>,
    weights: Vec<u32>,
}

impl Graph {
    /// Creates a graph without edges.
    pub fn new(vertices: usize) -> Self {
        let words = vertices.div_ceil(64);
        Self { vertices, words, rows: vec![0; vertices * words], weights: vec![1; vertices] }
    }

    /// Returns the number of vertices, which are numbered from 0.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// Adds an edge between two different vertices.
    pub fn connect(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            self.rows[a * self.words + b / 64] |= 1 << (b % 64);
        }
    }

    /// Returns whether there is an edge between two vertices.
    pub fn has_edge(&self, a: usize, b: usize) -> bool {
        self.rows[a * self.words + b / 64] & (1 << (b % 64)) != 0
    }

    /// Returns the weight of a vertex: 1 unless another was set.
    pub fn weight(&self, vertex: usize) -> u32 {
        self.weights[vertex]
    }

    /// Returns the number of neighbours of a vertex.
    pub fn degree(&self, vertex: usize) -> usize {
        self.row(vertex).iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the neighbours of a vertex, as bits.
    pub fn row(&self, vertex: usize) -> &[u64] {
        &self.rows[vertex * self.words..][..self.words]
    }

    /// Returns the neighbours of a vertex, in order.
    pub fn neighbours(&self, vertex: usize) -> impl Iterator<Item = usize> + '_ {
        let ones = |(word, &bits): (usize, &u64)| {
            let rest = |&bits: &u64| (bits != 0).then(|| bits & (bits - 1));
            let left = std::iter::successors(Some(bits), rest).take_while(|&bits| bits != 0);
            left.map(move |bits| 64 * word + bits.trailing_zeros() as usize)
        };
        self.row(vertex).iter().enumerate().flat_map(ones)
    }

    /// Returns whether all pairs of these vertices are connected.
    pub fn is_clique(&self, vertices: &[usize]) -> bool {
        let pairs = vertices.iter().enumerate();
        pairs.into_iter().all(|(i, &a)| vertices[i + 1..].iter().all(|&b| self.has_edge(a, b)))
    }
}

/// The maximum weight of a vertex; the sum over all vertices stays within 32 bits.
const WEIGHT_MAX: u32 = 1_000_000;

/// The expected form of the line `p`, for messages.
const HEADER: &str = "p edge VERTICES EDGES (or p col …)";

/// Reads a graph in DIMACS format: `p edge VERTICES EDGES` (or `p col`), then `e A B` for each edge and `n A
/// WEIGHT` for vertices with a weight other than 1; vertices count from 1. Comments (`c`) and other descriptions
/// of the graph (`d`, `v`, `x`) are skipped.
///
/// The number of edges must match the first line; otherwise the file was truncated. EDGES is the number of
/// different edges, independent of their directions and repetitions, or the number of lines with
/// edges. A loop (`e A A`) is never part of a clique: it is skipped, whether or not EDGES includes it.
///
/// The first half of a file that lists each edge in both directions, and counts edges, may have EDGES
/// lines. So the number of lines is not accepted if the lines may be such a half: each edge is directly
/// followed by the same one reversed, or the lines are the neighbours of each vertex, and the last vertices
/// are missing.
///
/// # Errors
/// Fails with the file, the line, the found and the expected text.
pub fn parse(file: &str, text: &str) -> Result<Graph, ReadError> {
    const LINES: &str = "e VERTEX VERTEX, n VERTEX WEIGHT, or a comment: c …";
    let mut words = Words::new(file, text);
    let mut read: Option<Reading> = None;
    while !words.is_at_end() {
        match (words.word(LINES)?, &mut read) {
            ("d" | "v" | "x", _) => words.skip_line(),
            (word, _) if is_comment(word) => words.skip_line(),
            ("p", None) => read = Some(Reading::begin(&mut words)?),
            ("p", Some(_)) => return Err(words.wrong("p", "only one line p")),
            (other, None) => return Err(words.wrong(other, &format!("{HEADER} before all else"))),
            ("n", Some(read)) => read.weight(&mut words)?,
            ("e", Some(read)) => read.edge(&mut words)?,
            (other, _) => return Err(words.wrong(other, LINES)),
        }
    }
    read.ok_or_else(|| words.missing(HEADER))?.end(&words)
}

/// Returns whether a line that starts with this word is a comment: `c`, or an underline such as `c-----`.
fn is_comment(word: &str) -> bool {
    word.strip_prefix('c').is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// The graph read so far, and the state to determine whether it is complete.
struct Reading {
    graph: Graph,
    /// The number of edges in the header, and its line.
    expected: (usize, usize),
    /// The number of lines with edges.
    lines: usize,
    /// The number of different edges.
    edges: usize,
    /// The loops: the number of lines, and of different vertices.
    loops: (usize, usize),
    /// The edges in the direction in which they are listed, as arcs. Loops are included.
    listed: Vec<u64>,
    /// Whether an edge was listed twice in the same direction.
    is_repeated: bool,
    /// The number of edges directly followed by the same edge reversed.
    turned: usize,
    last: Option<(usize, usize)>,
    /// The vertices that have been the first one of a line.
    has_begun: Vec<bool>,
    /// Whether the lines with the same first vertex follow each other.
    is_grouped: bool,
    is_weighed: Vec<bool>,
}

impl Reading {
    /// Reads the rest of the header.
    fn begin(words: &mut Words<'_>) -> Result<Self, ReadError> {
        let format = words.word_here(HEADER)?;
        if !["edge", "edges", "col", "clq"].contains(&format) {
            return Err(words.wrong(format, HEADER));
        }
        let vertices = words.number_here("a number of vertices", 0..=VERTICES_MAX)?;
        let edges = words.number_here("a number of edges", 0..=vertices * vertices)?;
        words.end_here(&format!(" after {HEADER}"))?;
        let graph = Graph::new(vertices);
        let listed = vec![0; graph.rows.len()];
        Ok(Self {
            graph,
            expected: (edges, words.line()),
            lines: 0,
            edges: 0,
            loops: (0, 0),
            listed,
            is_repeated: false,
            turned: 0,
            last: None,
            has_begun: vec![false; vertices],
            is_grouped: true,
            is_weighed: vec![false; vertices],
        })
    }

    fn weight(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let vertex = words.number_here("a vertex", 1..=self.graph.vertices)?;
        if std::mem::replace(&mut self.is_weighed[vertex - 1], true) {
            return Err(words.wrong(&format!("n {vertex}"), "the weight of each vertex once"));
        }
        self.graph.weights[vertex - 1] = words.number_here("a weight", 0..=WEIGHT_MAX)?;
        words.end_here(" after n VERTEX WEIGHT")
    }

    fn edge(&mut self, words: &mut Words<'_>) -> Result<(), ReadError> {
        let a = words.number_here("a vertex", 1..=self.graph.vertices)?;
        let b = words.number_here("a vertex", 1..=self.graph.vertices)?;
        words.end_here(" after e VERTEX VERTEX")?;
        let (a, b) = (a - 1, b - 1);
        if a == b {
            self.loops.0 += 1;
            self.loops.1 += usize::from(!self.list(a, a));
            return Ok(());
        }
        self.lines += 1;
        self.edges += usize::from(!self.graph.has_edge(a, b));
        self.graph.connect(a, b);
        self.is_repeated |= self.list(a, b);
        self.turned += usize::from(self.last == Some((b, a)));
        if self.last.is_none_or(|(first, _)| first != a) {
            self.is_grouped &= !std::mem::replace(&mut self.has_begun[a], true);
        }
        self.last = Some((a, b));
        Ok(())
    }

    /// Notes an arc. Returns whether it was listed before.
    fn list(&mut self, a: usize, b: usize) -> bool {
        let (word, bit) = (a * self.graph.words + b / 64, 1 << (b % 64));
        let was_listed = self.listed[word] & bit != 0;
        self.listed[word] |= bit;
        was_listed
    }

    /// Returns whether the lines may be half of a file that lists each edge in both directions. If no edge is listed
    /// twice, they are not taken for that.
    fn may_be_half(&self) -> bool {
        if self.lines == self.edges {
            return false;
        }
        let is_in_pairs = self.turned > 0 && 2 * self.turned + 1 >= self.lines;
        is_in_pairs
            || (!self.is_repeated && self.is_grouped && self.lines < 2 * self.edges && self.begins_lists())
    }

    /// Returns whether the lines may be the start of the lists of all neighbours: each edge between two
    /// vertices with complete lists is listed from either end. The last list may be incomplete.
    fn begins_lists(&self) -> bool {
        let is_complete =
            |vertex: usize| self.has_begun[vertex] && self.last.is_none_or(|(last, _)| last != vertex);
        let is_listed =
            |a: usize, b: usize| self.listed[a * self.graph.words + b / 64] & (1 << (b % 64)) != 0;
        let complete: Vec<usize> = (0..self.graph.vertices).filter(|&vertex| is_complete(vertex)).collect();
        complete.iter().all(|&a| {
            self.graph.neighbours(a).all(|b| is_listed(a, b) && (!is_complete(b) || is_listed(b, a)))
        })
    }

    /// Returns the graph, if it is complete.
    fn end(self, words: &Words<'_>) -> Result<Graph, ReadError> {
        let Self { expected: (expected, line), lines, edges, loops, .. } = self;
        let counts_edges = [edges, edges + loops.1].contains(&expected);
        let counts_lines = [lines, lines + loops.0].contains(&expected);
        if counts_edges || counts_lines && !self.may_be_half() {
            return Ok(self.graph);
        }
        let found = match lines - edges {
            0 => format!("{edges} edges"),
            _ => format!("{edges} different edges on {lines} lines"),
        };
        let wanted =
            format!("{expected} edges, as line {line} says (if these are all, correct it to {edges})");
        let last = words.line();
        Err(words.at(last, &found, &wanted))
    }
}
