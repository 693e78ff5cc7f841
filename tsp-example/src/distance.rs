//! The distance functions of TSPLIB 95 (G. Reinelt, *TSPLIB 95*, section 2), and the great circle for CSV
//! files.
//!
//! Every function returns a whole number, rounded as specified. The numbers are `f64`s because coordinates
//! may be large: the caller refuses results that do not fit a distance.

/// The distance function of two points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// `EUC_2D`, `EUC_3D`: Euclidean, rounded.
    Euclidean,
    /// `CEIL_2D`: Euclidean, rounded up.
    EuclideanUp,
    /// `MAN_2D`, `MAN_3D`: sum of the differences, rounded.
    Manhattan,
    /// `MAX_2D`, `MAX_3D`: the largest of the differences, each rounded.
    Maximum,
    /// `GEO`: kilometres on TSPLIB's idealised sphere, coordinates as degrees and minutes `DDD.MM`.
    Geographical,
    /// `ATT`: pseudo-Euclidean.
    PseudoEuclidean,
    /// `XRAY1`, `XRAY2`: crystallography, with the speeds of the three motors.
    XRay([f64; 3]),
    /// Great circle between latitudes and longitudes in decimal degrees, in kilometres, rounded. Not part of
    /// TSPLIB.
    GreatCircle,
}

/// The divisors of `XRAY1`.
pub const XRAY1: [f64; 3] = [1.0, 1.0, 1.0];
/// The divisors of `XRAY2`.
pub const XRAY2: [f64; 3] = [1.25, 1.5, 1.15];

/// A point: two coordinates, and a third that is 0 if there is none.
pub type Point = [f64; 3];

/// The mean radius of the earth in kilometres.
const EARTH_KM: f64 = 6371.0;

impl Metric {
    /// Returns the distance between two points, a whole number if the coordinates are finite and not too
    /// large.
    pub fn distance(self, a: Point, b: Point) -> f64 {
        let exact = self.exact(a, b);
        match self {
            Self::Euclidean | Self::Manhattan | Self::Maximum | Self::XRay(_) => nint(exact),
            Self::EuclideanUp => exact.ceil(),
            Self::Geographical => (exact + 1.0).trunc(),
            Self::PseudoEuclidean => {
                let rounded = nint(exact);
                if rounded < exact { rounded + 1.0 } else { rounded }
            }
            Self::GreatCircle => exact.round(),
        }
    }

    /// Returns the distance between two points before it is rounded.
    pub(crate) fn exact(self, a: Point, b: Point) -> f64 {
        let d = [0, 1, 2].map(|axis| (a[axis] - b[axis]).abs());
        let squares: f64 = d.iter().map(|x| x * x).sum();
        match self {
            Self::Euclidean | Self::EuclideanUp => squares.sqrt(),
            Self::Manhattan => d.iter().sum(),
            Self::Maximum => d.into_iter().fold(0.0, f64::max),
            Self::Geographical => geographical(a, b),
            Self::PseudoEuclidean => (squares / 10.0).sqrt(),
            Self::XRay(speed) => {
                let turn = d[0].min((d[0] - 360.0).abs());
                100.0 * (turn / speed[0]).max(d[1] / speed[1]).max(d[2] / speed[2])
            }
            Self::GreatCircle => great_circle(a, b),
        }
    }
}

/// The specification's `nint`: rounds half up.
fn nint(x: f64) -> f64 {
    (x + 0.5).floor()
}

fn geographical(a: Point, b: Point) -> f64 {
    // The specification's own constants; others make some distances one larger or smaller.
    #[allow(clippy::approx_constant, reason = "the specification says so")]
    const PI: f64 = 3.141_592;
    const RADIUS: f64 = 6378.388;
    let radians = |x: f64| PI * (x.trunc() + 5.0 * (x - x.trunc()) / 3.0) / 180.0;
    let ([lat_a, long_a], [lat_b, long_b]) = ([a[0], a[1]].map(radians), [b[0], b[1]].map(radians));
    let q1 = (long_a - long_b).cos();
    let q2 = (lat_a - lat_b).cos();
    let q3 = (lat_a + lat_b).cos();
    let cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3);
    // Rounding may exceed 1 for points that coincide.
    RADIUS * cosine.clamp(-1.0, 1.0).acos()
}

fn great_circle(a: Point, b: Point) -> f64 {
    let ([lat_a, long_a], [lat_b, long_b]) =
        ([a[0], a[1]].map(f64::to_radians), [b[0], b[1]].map(f64::to_radians));
    let half = |x: f64| (x / 2.0).sin().powi(2);
    let haversine = half(lat_b - lat_a) + lat_a.cos() * lat_b.cos() * half(long_b - long_a);
    2.0 * EARTH_KM * haversine.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metric: Metric, a: Point, b: Point, expected: f64) {
        // Distances are whole numbers, which floating point represents exactly.
        assert!((metric.distance(a, b) - expected).abs() < 1e-9, "{metric:?}");
        assert!((metric.distance(b, a) - expected).abs() < 1e-9, "{metric:?}, the other way");
    }

    #[test]
    fn distances_are_rounded_as_specified() {
        let (a, b) = ([0.0, 0.0, 0.0], [1.0, 1.0, 0.0]);
        check(Metric::Euclidean, a, b, 1.0);
        check(Metric::Euclidean, a, [1.5, 0.0, 0.0], 2.0);
        check(Metric::Euclidean, a, [2.0, 3.0, 6.0], 7.0);
        check(Metric::EuclideanUp, a, b, 2.0);
        check(Metric::Manhattan, a, [1.2, 1.2, 0.0], 2.0);
        check(Metric::Manhattan, a, [1.0, 2.0, 3.5], 7.0);
        check(Metric::Maximum, a, [1.4, 2.5, 0.0], 3.0);
        check(Metric::PseudoEuclidean, a, [10.0, 0.0, 0.0], 4.0);
        check(Metric::PseudoEuclidean, a, [6.0, 8.0, 0.0], 4.0);
    }

    #[test]
    fn xray_distance_uses_the_short_turn_and_the_speed_of_each_motor() {
        check(Metric::XRay(XRAY1), [350.0, 0.0, 0.0], [10.0, 0.0, 0.0], 2000.0);
        check(Metric::XRay(XRAY2), [10.0, 0.0, 0.0], [20.0, 15.0, 1.15], 1000.0);
    }

    #[test]
    fn distance_to_itself_is_zero_except_for_the_kilometre_of_tsplib() {
        check(Metric::Geographical, [16.47, 96.10, 0.0], [16.47, 96.10, 0.0], 1.0);
        check(Metric::GreatCircle, [48.85, 2.35, 0.0], [48.85, 2.35, 0.0], 0.0);
    }

    #[test]
    fn great_circle_of_a_quarter_equator_has_its_length() {
        check(Metric::GreatCircle, [0.0, 0.0, 0.0], [0.0, 90.0, 0.0], 10_008.0);
    }
}
