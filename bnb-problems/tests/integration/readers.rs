//! The readers: what is written reads back, what is cut is refused, and anything at all makes none of them
//! panic.

use bnb_framework::cli::ParseProblem as _;
use bnb_problems::{
    flowshop::{self, FlowShop},
    knapsack::Knapsack,
    maxclique::{self, Graph},
    qap::Qap,
};
use proptest::prelude::*;

/// Some pairs of different numbers below a size, each once, the smaller first.
fn edges(size: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    let pairs: Vec<(usize, usize)> = (0..size).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
    prop::sample::subsequence(pairs.clone(), 0..=pairs.len())
}

fn file_of(size: usize, counted: usize, lines: &[(usize, usize)]) -> String {
    let lines = lines.iter().map(|(a, b)| format!("e {} {}\n", a + 1, b + 1));
    format!("p edge {size} {counted}\n{}", lines.collect::<String>())
}

fn graph_of(size: usize, edges: &[(usize, usize)]) -> Graph {
    let mut graph = Graph::new(size);
    for &(a, b) in edges {
        graph.connect(a, b);
    }
    graph
}

/// A file in one of the formats, to be spoilt.
fn valid() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "c x\np edge 4 4\nn 1 7\ne 1 2\ne 2 3\ne 3 1\ne 3 4\n",
        "3 50\n60 10\n100 20\n120 30\n0 1 1\n",
        "3\n50\n60 10\n100 20\n120 30\n",
        "5.5\nlamp 1.25 6\nrope 2 10.5\n",
        "2\n0 3 5 0\n0 10\n1 0\n",
        "2 2\n3 1\n1 4\n6\n2 1\n",
        "number of jobs :\n 2 2 17 6 6\nprocessing times :\n 3 1\n 1 4\nnumber of\n 1 1\n 9\n",
    ])
    .prop_map(str::to_owned)
}

fn read_all(text: &str) -> Vec<String> {
    let errors = [
        maxclique::parse("f", text).err(),
        Knapsack::read("f", text).err(),
        Qap::read("f", text).err(),
        flowshop::parse("f", text, 1).err(),
    ];
    errors.into_iter().flatten().map(|error| error.to_string()).collect()
}

proptest! {
    #[test]
    fn a_graph_reads_back_from_every_way_to_list_it(
        (size, edges, by_vertex) in (3_usize..9).prop_flat_map(|size| (Just(size), edges(size), any::<bool>()))
    ) {
        let graph = graph_of(size, &edges);
        let turned = edges.iter().map(|&(a, b)| (b, a));
        let mut both: Vec<(usize, usize)> = edges.iter().copied().chain(turned).collect();
        if by_vertex {
            both.sort_unstable();
        }
        let (once, twice) = (edges.len(), both.len());
        let read = |counted, lines: &[_]| maxclique::parse("f", &file_of(size, counted, lines)).ok();
        prop_assert_eq!(read(once, &edges), Some(graph.clone()));
        prop_assert_eq!(read(once, &both), Some(graph.clone()));
        // The lines are counted: where each edge is followed by itself turned round, that could be half of a
        // file.
        let in_pairs = both.chunks(2).all(|pair| pair[0] == (pair[1].1, pair[1].0));
        prop_assert_eq!(read(twice, &both), (once == 0 || !in_pairs).then_some(graph));
        if once > 0 {
            prop_assert!(read(twice, &edges).is_none());
            prop_assert!(read(once - 1, &edges).is_none() && read(once + 1, &edges).is_none());
        }
    }

    /// Cut after any line, a file is refused, or has lost nothing.
    #[test]
    fn a_graph_that_was_cut_is_refused(
        (size, edges, cut) in
            (3_usize..9).prop_flat_map(|size| (Just(size), edges(size), any::<prop::sample::Index>())),
        how in 0..3,
    ) {
        let turned = |&(a, b): &(usize, usize)| (b, a);
        let (lines, counted): (Vec<_>, usize) = match how {
            0 => (edges.clone(), edges.len()),
            // Each edge directly followed by itself turned round, and the edges are counted.
            1 => (edges.iter().flat_map(|edge| [*edge, turned(edge)]).collect(), edges.len()),
            _ => {
                let mut both: Vec<_> = edges.iter().copied().chain(edges.iter().map(turned)).collect();
                both.sort_unstable();
                (both, 2 * edges.len())
            }
        };
        let left = &lines[..cut.index(lines.len() + 1)];
        if let Ok(read) = maxclique::parse("f", &file_of(size, counted, left)) {
            prop_assert_eq!(read, graph_of(size, &edges));
        }
    }

    #[test]
    fn both_formats_of_items_say_the_same(
        items in prop::collection::vec((0_u32..100_000, 0_u32..100_000), 1..9),
        capacity in 0_u32..1_000_000,
        decimals in 0_usize..4,
    ) {
        let number = |number: u32| format!("{:.decimals$}", f64::from(number) / 10_f64.powf(decimals as f64));
        let lines = |line: &dyn Fn(&str, &str) -> String| -> String {
            items.iter().map(|(value, weight)| line(&number(*value), &number(*weight))).collect()
        };
        let listed = lines(&|value, weight| format!("{value} {weight}\n"));
        let counted = format!("{}\n{}\n{listed}", items.len(), number(capacity));
        let listed = lines(&|value, weight| format!("item {weight} {value}\n"));
        let named = format!("{}\n{listed}", number(capacity));
        let read = Knapsack::read("f", &counted).unwrap();
        prop_assert_eq!(&Knapsack::read("f", &named).unwrap(), &read);
        let cut: String = counted.split_inclusive('\n').take(items.len() + 1).collect();
        prop_assert!(Knapsack::read("f", &cut).is_err());
    }

    #[test]
    fn a_flow_shop_with_more_or_fewer_lines_is_refused(
        jobs in 2_usize..6,
        machines in 2_usize..6,
        seed in 1_u32..1_000_000,
    ) {
        let times = std::iter::successors(Some(seed % 100), |time| Some((time * 37 + 11) % 100));
        let times: Vec<u32> = times.take(jobs * machines).collect();
        let rows: Vec<String> = times
            .chunks(jobs)
            .map(|row| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ") + "\n")
            .collect();
        let head = format!("{jobs} {machines}\n");
        let read = |rows: &[String]| flowshop::parse("f", &(head.clone() + &rows.concat()), 1);
        prop_assert_eq!(read(&rows).ok(), Some(FlowShop::new(jobs, machines, times)));
        prop_assert!(read(&rows[1..]).is_err());
        prop_assert!(read(&[&rows[..], &rows[..1]].concat()).is_err());
        prop_assert!(read(&[&rows[..], std::slice::from_ref(&head), &rows[..]].concat()).is_err(), "another without its title");
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "[-pecnvd0-9. \n\t:a-z]{0,60}") {
        for error in read_all(&text) {
            prop_assert!(error.starts_with("f:"), "{}", error);
        }
    }

    #[test]
    fn no_spoilt_file_makes_a_reader_panic(
        file in valid(),
        spoils in prop::collection::vec((any::<prop::sample::Index>(), 0..5, "[-+0-9a-zA-Z_:., \\n]{0,12}"), 1..6),
    ) {
        let mut words: Vec<String> = file.split_inclusive([' ', '\n']).map(str::to_owned).collect();
        for (place, what, text) in spoils {
            let place = place.index(words.len());
            match what {
                0 => { words.remove(place); }
                1 => words[place] = text,
                2 => { let word = words[place].clone(); words.insert(place, word); }
                3 => words.insert(place, text),
                _ => words.truncate(place + 1),
            }
            if words.is_empty() {
                words.push("\n".to_owned());
            }
        }
        for error in read_all(&words.concat()) {
            prop_assert!(error.starts_with("f:"), "{}", error);
        }
    }
}
