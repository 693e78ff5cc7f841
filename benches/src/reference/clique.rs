//! A handwritten search for the largest clique: a recursion over bit sets with the example's colour bound, in
//! the same order.

use bnb_problems::maxclique::Graph;

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The number of vertices in the largest clique.
    pub(crate) vertices: usize,
    /// The number of cliques visited.
    pub(crate) states: u64,
}

/// Finds the largest clique of a graph of at most `64 * W` vertices.
pub(crate) fn sequential<const W: usize>(graph: &Graph, order: &[usize]) -> Found {
    let vertices = graph.vertices();
    let mut near = vec![[0; W]; vertices];
    for (place, &vertex) in order.iter().enumerate() {
        for (other, &neighbour) in order.iter().enumerate() {
            if graph.has_edge(vertex, neighbour) {
                near[place][other / 64] |= 1 << (other % 64);
            }
        }
    }
    let mut open = [0; W];
    for place in 0..vertices {
        open[place / 64] |= 1 << (place % 64);
    }
    let found = Found { vertices: 0, states: 0 };
    let mut search = Search::<W> { near, found, clique: Vec::new(), best: Vec::new(), lists: Vec::new() };
    search.visit(open);
    std::hint::black_box(&search.best);
    search.found
}

struct Search<const W: usize> {
    near: Vec<[u64; W]>,
    found: Found,
    clique: Vec<u16>,
    best: Vec<u16>,
    /// Vertices with their colours, for all levels.
    lists: Vec<(u16, u16)>,
}

impl<const W: usize> Search<W> {
    fn visit(&mut self, mut open: [u64; W]) {
        self.found.states += 1;
        let size = self.clique.len();
        if open.iter().all(|&word| word == 0) {
            if size > self.found.vertices {
                self.found.vertices = size;
                self.best.clone_from(&self.clique);
            }
            return;
        }
        let first = self.lists.len();
        self.colour(&open);
        for place in (first..self.lists.len()).rev() {
            let (vertex, bound) = self.lists[place];
            if usize::from(bound) <= self.found.vertices {
                break;
            }
            let near = &self.near[usize::from(vertex)];
            let mut rest = open;
            for (word, bits) in rest.iter_mut().zip(near) {
                *word &= bits;
            }
            open[usize::from(vertex) / 64] &= !(1 << (vertex % 64));
            self.clique.push(vertex);
            self.visit(rest);
            self.clique.pop();
        }
        self.lists.truncate(first);
    }

    /// Lists the vertices that may improve on the best clique.
    fn colour(&mut self, open: &[u64; W]) {
        let mut bound = self.clique.len();
        let mut left = *open;
        while left.iter().any(|&word| word != 0) {
            bound += 1;
            let mut free = left;
            for word in 0..W {
                while free[word] != 0 {
                    let vertex = 64 * word + free[word].trailing_zeros() as usize;
                    left[word] &= !(1 << (vertex % 64));
                    free[word] &= !(1 << (vertex % 64));
                    for (bits, near) in free[word..].iter_mut().zip(&self.near[vertex][word..]) {
                        *bits &= !near;
                    }
                    if bound > self.found.vertices {
                        self.lists.push((vertex as u16, bound as u16));
                    }
                }
            }
        }
    }
}
