//! A handwritten travelling salesman: the same trees as `tsp-example`'s paths, without any framework.

use tsp_example::instance::Instance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The length of the shortest tour.
    pub(crate) length: u64,
    pub(crate) states: u64,
}

/// An instance in the form that the loops below need: rows of a fixed stride, cities as bits of a word.
#[derive(Debug)]
pub(crate) struct Table {
    cities: usize,
    distances: Vec<u32>,
}

const STRIDE: usize = 32;

impl Table {
    /// Creates the table of an instance of at most 32 cities.
    ///
    /// # Panics
    /// If there are more.
    pub(crate) fn new(instance: &Instance) -> Self {
        let cities = instance.len();
        assert!(cities <= STRIDE, "{cities} cities where {STRIDE} fit");
        let mut distances = vec![0; STRIDE * STRIDE];
        for i in 0..cities {
            distances[i * STRIDE..][..cities].copy_from_slice(instance.row(i));
        }
        Self { cities, distances }
    }

    #[inline]
    fn distance(&self, i: usize, j: usize) -> u64 {
        u64::from(self.distances[(i % STRIDE) * STRIDE + j % STRIDE])
    }

    fn open(&self) -> u32 {
        (u32::MAX >> (STRIDE - self.cities)) & !1
    }
}

/// Searches all paths by a recursion that undoes its steps: the lowest possible cost per state.
pub(crate) fn recursion(table: &Table) -> Found {
    struct Search<'a> {
        table: &'a Table,
        found: Found,
        path: [u8; STRIDE],
        best: [u8; STRIDE],
    }
    impl Search<'_> {
        fn visit(&mut self, depth: usize, last: usize, open: u32, length: u64) {
            self.found.states += 1;
            if open == 0 {
                let length = length + self.table.distance(last, 0);
                if length < self.found.length {
                    self.found.length = length;
                    self.best = self.path;
                }
                return;
            }
            let mut left = open;
            while left != 0 {
                let city = left.trailing_zeros();
                left &= left - 1;
                self.path[depth % STRIDE] = city as u8;
                let length = length + self.table.distance(last, city as usize);
                self.visit(depth + 1, city as usize, open & !(1 << city), length);
            }
        }
    }
    let found = Found { length: u64::MAX, states: 0 };
    let mut search = Search { table, found, path: [0; STRIDE], best: [0; STRIDE] };
    search.visit(1, 0, table.open(), 0);
    std::hint::black_box(search.best);
    search.found
}

/// Searches all paths with an explicit stack of states.
pub(crate) fn stack(table: &Table) -> Found {
    #[derive(Clone, Copy)]
    struct State {
        path: [u8; 16],
        cities: u8,
        open: u32,
        length: u64,
    }
    assert!(table.cities <= 16, "{} cities where 16 fit", table.cities);
    let mut found = Found { length: u64::MAX, states: 0 };
    let mut best = [0; 16];
    let mut open = vec![State { path: [0; 16], cities: 1, open: table.open(), length: 0 }];
    while let Some(state) = open.pop() {
        found.states += 1;
        let last = usize::from(state.path[usize::from(state.cities - 1) % 16]);
        if state.open == 0 {
            let length = state.length + table.distance(last, 0);
            if length < found.length {
                found.length = length;
                best = state.path;
            }
            continue;
        }
        let mut left = state.open;
        while left != 0 {
            let city = left.trailing_zeros();
            left &= left - 1;
            let mut child = state;
            child.path[usize::from(state.cities) % 16] = city as u8;
            child.cities += 1;
            child.open &= !(1 << city);
            child.length += table.distance(last, city as usize);
            open.push(child);
        }
    }
    std::hint::black_box(best);
    found
}

/// Searches all paths, the nearest city first: the tree of `tsp-example` in its order, by a recursion that
/// undoes its steps.
pub(crate) fn recursion_nearest_first(instance: &Instance) -> Found {
    struct Search {
        near: [[(u32, u8); 16]; 16],
        places: [[u8; 16]; 16],
        back: [u32; 16],
        found: Found,
        path: [u8; 16],
        best: [u8; 16],
    }
    impl Search {
        fn visit(&mut self, depth: usize, last: usize, open: u32, length: u64) {
            self.found.states += 1;
            if open == 0 {
                let length = length + u64::from(self.back[last]);
                if length < self.found.length {
                    self.found.length = length;
                    self.best = self.path;
                }
                return;
            }
            let (mut left, mut rest) = (0_u32, open);
            while rest != 0 {
                left |= 1 << self.places[last][rest.trailing_zeros() as usize % 16];
                rest &= rest - 1;
            }
            while left != 0 {
                let (step, city) = self.near[last][left.trailing_zeros() as usize % 16];
                left &= left - 1;
                self.path[depth % 16] = city;
                self.visit(depth + 1, usize::from(city) % 16, open & !(1 << city), length + u64::from(step));
            }
        }
    }
    let found = Found { length: u64::MAX, states: 0 };
    let mut search = Search {
        near: Default::default(),
        places: Default::default(),
        back: [0; 16],
        found,
        path: [0; 16],
        best: [0; 16],
    };
    let cities = instance.len();
    for i in 0..cities {
        let mut others: Vec<usize> = (0..cities).filter(|&j| j != i).collect();
        others.sort_by_key(|&j| instance.distance(i, j));
        for (place, j) in others.into_iter().enumerate() {
            search.near[i][place] = (instance.distance(i, j), j as u8);
            search.places[i][j] = place as u8;
        }
        search.back[i] = instance.distance(i, 0);
    }
    search.visit(1, 0, (1 << cities) - 2, 0);
    std::hint::black_box(search.best);
    search.found
}

/// Searches with the spanning tree of the unvisited cities as bound, without an initial tour, the nearest
/// city first, by a recursion. For at most 32 cities.
///
/// # Panics
/// If there are more.
pub(crate) fn spanning_tree(instance: &Instance) -> Found {
    let cities = instance.len();
    assert!(cities <= STRIDE, "{cities} cities where {STRIDE} fit");
    let near = (0..cities).map(|i| {
        let mut others: Vec<u8> = (0..cities).filter(|&j| j != i).map(|j| j as u8).collect();
        others.sort_by_key(|&j| instance.distance(i, usize::from(j)));
        others
    });
    let found = Found { length: u64::MAX, states: 0 };
    let mut search = Bounded { near: near.collect(), instance, found, path: Vec::new(), best: Vec::new() };
    search.visit(0, (1 << cities) - 1, 0);
    std::hint::black_box(&search.best);
    search.found
}

struct Bounded<'a> {
    instance: &'a Instance,
    near: Vec<Vec<u8>>,
    found: Found,
    path: Vec<u8>,
    best: Vec<u8>,
}

impl Bounded<'_> {
    fn visit(&mut self, last: u8, open: u32, length: u64) {
        self.found.states += 1;
        let open = open & !(1 << last);
        self.path.push(last);
        if open == 0 {
            let length = length + u64::from(self.instance.distance(usize::from(last), 0));
            if length < self.found.length {
                self.found.length = length;
                self.best.clone_from(&self.path);
            }
        } else if length + self.tree(open) < self.found.length {
            for place in 0..self.near[usize::from(last)].len() {
                let city = self.near[usize::from(last)][place];
                if open & (1 << city) != 0 {
                    let step = self.instance.distance(usize::from(last), usize::from(city));
                    self.visit(city, open, length + u64::from(step));
                }
            }
        }
        self.path.pop();
    }

    /// Returns the length of a minimum spanning tree, by Prim's algorithm.
    fn tree(&self, mut cities: u32) -> u64 {
        let (mut open, mut reach, mut left) = ([0_u8; STRIDE], [u32::MAX; STRIDE], 0);
        while cities != 0 {
            open[left] = cities.trailing_zeros() as u8;
            cities &= cities - 1;
            left += 1;
        }
        left -= 1;
        let (mut length, mut last) = (0, open[left]);
        while left > 0 {
            let row = self.instance.row(usize::from(last));
            let (mut nearest, mut best) = (0, u32::MAX);
            for place in 0..left {
                reach[place] = reach[place].min(row[usize::from(open[place])]);
                if reach[place] < best {
                    (nearest, best) = (place, reach[place]);
                }
            }
            length += u64::from(best);
            last = open[nearest];
            left -= 1;
            (open[nearest], reach[nearest]) = (open[left], reach[left]);
        }
        length
    }
}
