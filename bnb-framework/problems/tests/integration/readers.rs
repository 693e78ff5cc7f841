//! The readers: written files read back, truncated files are refused, and no input makes a reader
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
        "3\n1 60 10\n2 100 20\n3 120 30\n50\n",
        "2 3\n0 3 5 0\n0 10\n1 0\n",
        "p edge 4 5\ne 1 2\ne 1 3\ne 1 2\ne 2 3\ne 4 4\n",
        "5.5\nlamp 1.25 6\nrope 2 10.5\n",
        "2\n0 3 5 0\n0 10\n1 0\n",
        "2 2\n3 1\n1 4\n6\n2 1\n",
        "number of jobs :\n 2 2 17 6 6\nprocessing times :\n 3 1\n 1 4\nnumber of\n 1 1\n 9\n",
    ])
    .prop_map(str::to_owned)
}

/// Returns a text as other systems write it: with their line ends and end marks.
fn spellings(text: &str) -> [String; 5] {
    [
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        format!("\u{feff}{text}"),
        format!("{text}\x1a"),
        format!("{}\x1a\x1a\r\n", text.replace('\n', "\r\n")),
    ]
}

#[test]
fn foreign_line_ends_and_end_marks_have_no_effect() {
    let graph = "p edge 3 2\ne 1 2\ne 2 3\n";
    let items = "3 50\n60 10\n100 20\n120 30\n";
    let matrices = "2\n0 3\n5 0\n0 1\n1 0\n";
    let times = "2 2\n3 1\n1 4\n";
    for text in spellings(graph) {
        assert_eq!(maxclique::parse("f", &text), maxclique::parse("f", graph), "{text:?}");
    }
    for text in spellings(items) {
        assert_eq!(Knapsack::read("f", &text).unwrap(), Knapsack::read("f", items).unwrap(), "{text:?}");
    }
    for text in spellings(matrices) {
        assert_eq!(Qap::read("f", &text).unwrap(), Qap::read("f", matrices).unwrap(), "{text:?}");
    }
    for text in spellings(times) {
        assert_eq!(flowshop::parse("f", &text, 1), flowshop::parse("f", times, 1), "{text:?}");
    }
    assert!(Knapsack::read("f", "1 50\n\x1a\n60 10\n").is_err(), "text after an end mark");
}

#[test]
fn loops_of_a_graph_are_skipped_whether_counted_or_not() {
    let triangle = graph_of(4, &[(0, 1), (0, 2), (1, 2)]);
    let edges = "e 1 2\ne 1 3\ne 2 3\n";
    let read =
        |counted: usize, lines: &str| maxclique::parse("f", &format!("p edge 4 {counted}\n{lines}")).ok();
    for counted in [3, 4] {
        assert_eq!(read(counted, &format!("{edges}e 4 4\n")), Some(triangle.clone()), "{counted}");
    }
    assert_eq!(read(5, &format!("e 4 4\ne 4 4\n{edges}")), Some(triangle.clone()), "each line of a loop");
    assert_eq!(read(2, &format!("{edges}e 4 4\n")), None);
    assert_eq!(read(6, &format!("{edges}e 4 4\n")), None);
    let both = "e 1 2\ne 1 3\ne 2 1\ne 2 3\ne 3 1\ne 3 2\ne 4 4\ne 4 4\n";
    for counted in [3, 4, 6, 8] {
        assert_eq!(read(counted, both), Some(triangle.clone()), "{counted}");
    }
}

#[test]
fn repeated_lines_of_a_graph_may_be_counted() {
    let graph = graph_of(4, &[(0, 1), (0, 2), (1, 2), (2, 3)]);
    let read =
        |counted: usize, lines: &str| maxclique::parse("f", &format!("p edge 4 {counted}\n{lines}")).ok();
    assert_eq!(read(5, "e 1 2\ne 1 3\ne 2 3\ne 1 2\ne 3 4\n"), Some(graph.clone()));
    assert_eq!(read(5, "e 3 4\ne 1 2\ne 1 3\ne 2 3\ne 2 1\n"), Some(graph), "one of them reversed");
    assert_eq!(read(6, "e 1 2\ne 1 3\ne 2 3\ne 1 2\ne 3 4\n"), None);
    assert_eq!(read(4, "e 1 2\ne 2 1\ne 1 3\ne 3 1\n"), None, "half of a file, in pairs");
    // All edges between four vertices, from either end: the second half is missing.
    assert_eq!(read(6, "e 1 2\ne 1 3\ne 1 4\ne 2 1\ne 2 3\ne 2 4\n"), None, "half of a file, by vertex");
}

#[test]
fn best_known_cost_of_a_qap_is_skipped() {
    let matrices = "0 1 2\n1 0 3\n2 3 0\n0 4 5\n4 0 6\n5 6 0\n";
    let plain = Qap::read("f", &format!("3\n{matrices}")).unwrap();
    // Beyond the limit of an entry, too.
    for best in ["20", "0", "-7", "99999999999"] {
        assert_eq!(Qap::read("f", &format!("3 {best}\n{matrices}")).unwrap(), plain, "{best}");
        let cut = matrices.trim_end().strip_suffix('0').unwrap();
        let refused = Qap::read("f", &format!("3 {best}\n{cut}")).unwrap_err().to_string();
        assert!(refused.starts_with("f:1: ") && refused.contains("best known"), "{refused}");
    }
    let refused = Qap::read("f", &format!("3 much\n{matrices}")).unwrap_err().to_string();
    assert!(refused.starts_with("f:1: ") && refused.contains("best known"), "{refused}");
    assert_eq!(Qap::read("f", &format!("3 {}", matrices.replace('\n', " "))).unwrap(), plain, "one line");
}

#[test]
fn capacity_of_a_knapsack_may_be_last() {
    let plain = Knapsack::read("f", "3 50\n60 10\n100 20\n120 30\n").unwrap();
    for first in [0, 1] {
        let lines: Vec<String> = [(60, 10), (100, 20), (120, 30)]
            .into_iter()
            .zip(first..)
            .map(|((value, weight), index)| format!("{index} {value} {weight}\n"))
            .collect();
        let read = |lines: &[String], end: &str| Knapsack::read("f", &format!("3\n{}{end}", lines.concat()));
        assert_eq!(read(&lines, "50\n\n").unwrap(), plain);
        assert!(read(&lines, "").is_err(), "no capacity");
        assert!(read(&lines[..2], "50\n").is_err() && read(&lines[1..], "50\n").is_err(), "cut");
        assert!(read(&lines, "50\n50\n").is_err(), "text after it");
        let turned: Vec<String> = lines.iter().rev().cloned().collect();
        assert!(read(&turned, "50\n").is_err(), "indices out of order");
    }
}

#[test]
fn flow_shop_with_a_line_for_each_job_is_refused_by_name() {
    let refused = flowshop::parse("f", "3 2\n1 2\n3 4\n5 6\n", 1).unwrap_err().to_string();
    assert!(refused.starts_with("f:2: ") && refused.contains("not for each job"), "{refused}");
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
    fn graph_reads_back_in_every_listing(
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
    fn truncated_graph_is_refused(
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
    fn items_in_either_format_are_read_alike(
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
    fn flow_shop_with_wrong_line_count_is_refused(
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
    fn readers_do_not_panic_on_random_text(text in "[-pecnvd0-9. \n\t:a-z]{0,60}") {
        for error in read_all(&text) {
            prop_assert!(error.starts_with("f:"), "{}", error);
        }
    }

    #[test]
    fn readers_do_not_panic_on_corrupted_files(
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
