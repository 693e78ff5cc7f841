//! The paper's two figures with these measurements, as one picture.

use std::{error::Error, path::Path};

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
};

use super::{ADDED, NODES, PHASES_S, show::Measured};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub(super) type Drawn = Result<(), Box<dyn Error>>;

const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(213, 94, 0), RGBColor(148, 33, 146)];
/// The lengths of the dashes of an ideal runtime's lines, and of the gaps, in pixels.
const DASHES: (i32, i32) = (4, 4);

/// Draws the change in speedup over the time for which nodes are added, and the numbers of nodes at work.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(path: &Path, measured: &Measured) -> Drawn {
    let root = SVGBackend::new(path, (760, 640)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(360);
    changes(&above, measured)?;
    at_work(&below, measured)?;
    root.present()?;
    Ok(())
}

/// Returns the end of an axis: a multiple of the step, with all values within.
pub(super) fn end_of_axis(values: impl IntoIterator<Item = f64>, step: f64) -> f64 {
    let most = values.into_iter().fold(0.0, f64::max);
    (most / step).ceil().max(1.0) * step
}

/// Converts the moments at which a value changes into the corners of a line.
pub(super) fn corners(steps: &[(f64, usize)]) -> Vec<(f64, f64)> {
    let mut line = Vec::new();
    let mut last = None;
    for &(at, value) in steps {
        line.extend(last.map(|last| (at, last)));
        line.push((at, value as f64));
        last = Some(value as f64);
    }
    line
}

pub(super) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    ends: (f64, f64, f64),
) -> Result<Chart<'a, 'b>, Box<dyn Error>>
where
    'b: 'a,
{
    let (right, bottom, top) = ends;
    Ok(ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, bottom..top)?)
}

pub(super) fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

fn changes(area: &Area<'_>, measured: &Measured) -> Drawn {
    let cells = measured.cells();
    let top = end_of_axis(cells.iter().flat_map(|cell| [cell.ideal.most, cell.change.most]), 20.0);
    let least = end_of_axis(cells.iter().map(|cell| -cell.change.least), 10.0);
    let mut chart = chart(area, (end_of_axis(PHASES_S.map(f64::from), 2.0), -least, top))?;
    chart
        .configure_mesh()
        .x_desc("seconds for which nodes are added (dashed: an ideal runtime)")
        .y_desc("change in speedup, %")
        .draw()?;
    for (added, colour) in ADDED.into_iter().zip(COLOURS) {
        let points = |ideal: bool| {
            let cells = cells.iter().filter(move |cell| cell.growth.added == added);
            cells.map(move |cell| {
                let change = if ideal { cell.ideal } else { cell.change };
                (f64::from(cell.growth.phase_s), change.median)
            })
        };
        let (dash, gap) = DASHES;
        chart.draw_series(DashedLineSeries::new(points(true), dash, gap, colour.stroke_width(1)))?;
        chart.draw_series(points(false).map(|at| Circle::new(at, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(points(false), colour.stroke_width(2)))?
            .label(format!("{} nodes", NODES + added))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

/// Draws the first run of each number of nodes for the longest time.
fn at_work(area: &Area<'_>, measured: &Measured) -> Drawn {
    let runs: Vec<_> = measured
        .grown
        .iter()
        .filter(|(growth, _)| growth.phase_s == PHASES_S[3])
        .filter_map(|(growth, runs)| Some((growth.added, runs.first()?)))
        .collect();
    let right = end_of_axis(runs.iter().map(|(_, run)| run.seconds), 10.0);
    let top = end_of_axis(runs.iter().map(|(added, _)| (NODES + added) as f64), 10.0);
    let mut chart = chart(area, (right, 0.0, top))?;
    chart.configure_mesh().x_desc("seconds since the submission").y_desc("nodes at work").draw()?;
    for (added, colour) in ADDED.into_iter().zip(COLOURS) {
        for (_, run) in runs.iter().filter(|(of, _)| *of == added) {
            chart.draw_series(LineSeries::new(corners(&run.at_work), colour.stroke_width(2)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_contains_all_values() {
        let is = |values: &[f64], step, end: f64| {
            let found = end_of_axis(values.iter().copied(), step);
            assert!((found - end).abs() < 1e-9, "{found}, not {end}");
        };
        is(&[3.0, 101.0], 20.0, 120.0);
        is(&[100.0], 20.0, 100.0);
        is(&[-7.0], 10.0, 10.0);
        is(&[], 10.0, 10.0);
    }

    #[test]
    fn value_holds_until_the_next() {
        assert_eq!(corners(&[(0.0, 0), (1.0, 5)]), [(0.0, 0.0), (1.0, 0.0), (1.0, 5.0)]);
    }
}
