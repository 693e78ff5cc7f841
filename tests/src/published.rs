//! Problems with their published results.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// An instance and its expected result.
#[derive(Debug, Clone)]
pub struct Case {
    /// The program that solves it.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The field of its output that holds the result.
    pub field: &'static str,
    /// The expected value.
    pub answer: u64,
}

impl Case {
    fn new(program: &'static str, arguments: &[&str], field: &'static str, answer: u64) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { program, arguments, field, answer }
    }

    /// Returns the command that solves or submits it, and prints JSON.
    pub fn command<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let given = self.arguments.iter().map(String::as_str);
        [command, "--quiet", "--json"].into_iter().chain(given).chain(more.iter().copied()).collect()
    }

    /// Checks that the result is the published one.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, said: &serde_json::Value, where_solved: &str) -> Result<()> {
        let found = &said[self.field];
        ensure!(
            *found == self.answer,
            "{} {:?} {where_solved}: {} {} was expected: {said}",
            self.program,
            self.arguments,
            self.field,
            self.answer
        );
        Ok(())
    }
}

/// The program for each kind of instance in the index, and the field of its result.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("tsp", "tsp", "length"),
    ("atsp", "tsp", "length"),
    ("maxclique", "maxclique", "vertices"),
    ("knapsack01", "knapsack", "value"),
    ("qap", "qap", "cost"),
    ("pfsp", "flowshop", "makespan"),
];

/// Instances that take several minutes in a debug build: they are for benchmarks.
const FOR_RELEASES: [&str; 2] = ["clique/brock400_4.clq", "flowshop/ta022"];

/// Returns the instances of the index that a program solves, except the slow ones, each with its file as the argument.
///
/// # Errors
/// If the index cannot be read.
pub fn indexed(folder: &Path, program: &str) -> Result<Vec<Case>> {
    let index = fs::read_to_string(folder.join("INDEX.tsv")).context("reading the index of instances")?;
    let mut cases = Vec::new();
    for row in index.lines().map(|row| row.split('\t').collect::<Vec<_>>()) {
        let &[file, kind, optimum, ..] = row.as_slice() else { continue };
        let kind = kind.split(' ').next().unwrap_or(kind);
        let Some(&(_, solver, field)) = PROGRAMS.iter().find(|(known, ..)| *known == kind) else { continue };
        if solver == program && !FOR_RELEASES.contains(&file) {
            let path = folder.join(file);
            let path = path.to_str().context("a path that is not UTF-8")?;
            cases.push(Case::new(solver, &[path], field, optimum.parse()?));
        }
    }
    ensure!(!cases.is_empty(), "the index has no instance for {program}");
    Ok(cases)
}

/// Returns the cases of the programs that count, and the rulers, from their tables.
///
/// # Errors
/// If a table cannot be read.
pub fn counted(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let rows = |table: &str| -> Result<Vec<Vec<String>>> {
        let table = fs::read_to_string(folder.join(table)).with_context(|| format!("reading {table}"))?;
        Ok(table.lines().skip(1).map(|row| row.split('\t').map(str::to_owned).collect()).collect())
    };
    for (table, program, field, up_to) in [
        ("enum/nqueens_A000170.tsv", "nqueens", "ways", 14),
        ("enum/numerical_semigroups_A007323.tsv", "numerical-semigroups", "semigroups", 28),
        ("enum/golomb_A003022.tsv", "golomb", "length", 10),
    ] {
        for row in rows(table)?.iter().filter(|row| row[0].parse().is_ok_and(|n: u64| n <= up_to)) {
            cases.push(Case::new(program, &[&row[0]], field, row[1].parse()?));
        }
    }
    // All five families, in sizes that take a second.
    for row in rows("uts/trees.tsv")?.iter().filter(|row| ["T1", "T2", "T3", "T4", "T5"].contains(&&*row[0]))
    {
        cases.push(Case::new("uts", &[&row[0]], "nodes", row[3].parse()?));
    }
    Ok(cases)
}

/// Returns for each program an instance that takes several seconds, so that faults can happen during the run.
///
/// # Errors
/// If a path is not valid UTF-8.
pub fn lasting(folder: &Path) -> Result<Vec<Case>> {
    let file = |name: &str| folder.join(name).to_str().map(str::to_owned).context("a path that is not UTF-8");
    Ok(vec![
        Case::new("uts", &["T3", "--spin", "30"], "nodes", 4_112_897),
        Case::new("nqueens", &["16"], "ways", 14_772_512),
        Case::new("numerical-semigroups", &["34"], "semigroups", 40_761_087),
        Case::new("golomb", &["11"], "length", 72),
        Case::new("maxclique", &[&file("clique/brock400_4.clq")?], "vertices", 33),
        Case::new("qap", &[&file("qap/nug15.dat")?], "cost", 1150),
        Case::new("tsp", &[&file("atsp/ry48p.atsp")?, "--bound", "assignment"], "length", 14_422),
        // Taillard's ta017, whose optimum is 1484.
        Case::new(
            "flowshop",
            &["--jobs", "20", "--machines", "10", "--seed", "73807235", "--cutoff", "1485"],
            "makespan",
            1484,
        ),
    ])
}
