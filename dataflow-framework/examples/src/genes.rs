//! Genes in the regions of a genome, as the last and longest part of a pipeline for the detection of genes has it
//! (Tejedor 2013, section 6.5): each region is searched, and the reports are merged.
//!
//! All data are files: the genome, which every task reads, and the reports. The regions are part of the calls. In
//! place of `GeneWise` a search for open reading frames stands.

use std::{
    error::Error,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
};

use dataflow_framework::{Data, File, program, reduce, task};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::hmmpfam;

/// The size of the search.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Input {
    /// The number of regions.
    #[arg(long, default_value_t = 3068, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    pub regions: u64,
    /// The number of bases of a region.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    pub bases: u64,
    /// The seed of the genome.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The number of bases of a codon.
const CODON: usize = 3;

/// Searches a region of a genome for genes, and writes a line for each.
///
/// # Errors
/// If the genome has no such region, or a file cannot be read or written.
#[task]
pub fn genewise(genome: &File, region: Range<u64>) -> io::Result<File> {
    let mut bases = vec![0; usize::try_from(region.end - region.start).map_err(io::Error::other)?];
    let mut genome = genome.reader()?;
    genome.seek(SeekFrom::Start(region.start))?;
    genome.read_exact(&mut bases)?;
    File::made("report", |report| {
        frames(&bases).try_for_each(|gene| {
            let (from, to) = (region.start + gene.start as u64 + 1, region.start + gene.end as u64);
            writeln!(report, "{from:012}\t{to:012}")
        })
    })
}

/// Merges a report into another one.
///
/// # Errors
/// If a file cannot be read or written.
#[task]
pub fn merge_reports(to: &mut File, from: &File) -> io::Result<()> {
    hmmpfam::merge::now(to, from)
}

/// Returns the open reading frames: from each `ATG` that is in no frame before it to the next stop codon.
fn frames(bases: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            let start = next + bases.get(next..)?.windows(CODON).position(|codon| codon == b"ATG")?;
            let codons = bases[start..].chunks_exact(CODON);
            let stop = codons
                .enumerate()
                .find(|(_, codon)| [b"TAA", b"TAG", b"TGA"].contains(&&[codon[0], codon[1], codon[2]]));
            match stop {
                Some((number, _)) => {
                    next = start + (number + 1) * CODON;
                    return Some(start..next);
                }
                None => next = start + 1,
            }
        }
    })
}

/// Returns the bases of a genome that is long enough for all regions.
fn genome(input: Input) -> impl Iterator<Item = u8> {
    let mut random = StdRng::seed_from_u64(input.seed);
    (0..input.regions * input.bases).map(move |_| b"ACGT"[random.random_range(0..4)])
}

/// Returns the report of all regions: a line for each gene, in order, with the numbers of its first and its last base.
fn report(input: Input) -> Result<String, Box<dyn Error + Send + Sync>> {
    let whole = File::made("genome", |to| genome(input).try_for_each(|base| to.write_all(&[base])));
    let whole = Data::new(whole?);
    let regions = (0..input.regions).map(|number| number * input.bases..(number + 1) * input.bases);
    let reports: Vec<_> = regions.map(|region| genewise(&whole, region)).collect();
    let report = reduce(reports, merge_reports).expect("there are regions");
    Ok(report.get()?.read_to_string()?)
}

/// Searches the regions of a genome for genes. Returns the number of genes.
///
/// # Errors
/// If a call fails, or a file cannot be written.
///
/// # Panics
/// If there are no regions.
#[program(genewise, merge_reports)]
pub fn genes(#[command(flatten)] input: Input) -> Result<usize, Box<dyn Error + Send + Sync>> {
    Ok(report(input)?.lines().count())
}

#[cfg(test)]
mod tests {
    use dataflow_framework::{Main, Program as _, Workflow};

    use super::{Input, frames, genes, genome, report};

    type Result = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Returns the same by a loop.
    fn expected(input: Input) -> String {
        let genome: Vec<_> = genome(input).collect();
        let bases = usize::try_from(input.bases).expect("they fit");
        let regions = genome.chunks_exact(bases).enumerate();
        let lines = regions.flat_map(|(number, region)| {
            let start = number * bases;
            frames(region)
                .map(move |gene| format!("{:012}\t{:012}\n", start + gene.start + 1, start + gene.end))
        });
        lines.collect()
    }

    #[test]
    fn gene_ends_at_first_stop_codon() {
        let found = |bases: &[u8]| frames(bases).map(|gene| (gene.start, gene.end)).collect::<Vec<_>>();
        assert_eq!(found(b"ATGTAA"), [(0, 6)]);
        assert_eq!(found(b"CATGATGACTTAGATGTGAATG"), [(1, 13), (13, 19)]);
        // The first two do not end.
        assert_eq!(found(b"CATGATGACTAGATGTGAATG"), [(12, 18)]);
        assert_eq!(found(b"ATGATAAG"), []);
        assert_eq!(found(b"AT"), []);
    }

    #[test]
    fn result_is_the_same_in_all_modes() -> Result {
        let input = Input { regions: 37, bases: 300, seed: 7 };
        let expected = expected(input);
        assert!(expected.lines().count() > 37);
        assert_eq!(Workflow::new(genes::tasks())?.sequential().run(|| report(input))?, expected);
        for workers in [1, 4] {
            assert_eq!(Workflow::new(genes::tasks())?.workers(workers).run(|| report(input))?, expected);
        }
        Ok(())
    }

    /// The genome goes to other nodes in several pieces.
    #[test]
    fn nodes_within_process_give_same_result() -> Result {
        let input = Input { regions: 40, bases: 20_000, seed: 3 };
        let expected = expected(input);
        for nodes in [1, 3] {
            let report = Main::<genes>::job((input,)).nodes(nodes).run()?;
            assert_eq!(Main::<genes>::returned(&report)?, expected.lines().count(), "on {nodes} nodes");
        }
        Ok(())
    }

    /// The figures of the thesis.
    #[test]
    fn program_makes_expected_number_of_calls() -> Result {
        let input = Input { regions: 3068, bases: 60, seed: 1 };
        let (report, figures) = Workflow::new(genes::tasks())?.workers(2).run_with_stats(|| report(input))?;
        assert_eq!(report, expected(input));
        assert_eq!(figures.calls, 3068 + 3067);
        assert_eq!(figures.dependencies, 2 * 3067);
        assert_eq!(figures.depth, 13);
        Ok(())
    }
}
