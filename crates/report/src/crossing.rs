//! Where a function passes zero.

/// The end of a search that does not come nearer, as among values that are no numbers.
const MOST_STEPS: usize = 200;

/// The point between `low` and `high`, to within `precision`, where a rising function passes 0: an end, if it passes 0 beyond.
///
/// It is Chandrupatla's method ("A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function
/// without using derivatives", Advances in Engineering Software 28, 1997): inverse quadratic interpolation through the last three
/// points where that is safe, else the middle. Of a smooth function it takes some twelve values, of any function few more than
/// bisection. Where `precision` is finer than the numbers are, the answer is as exact as they are.
pub(crate) fn crossing(low: f64, high: f64, precision: f64, function: impl Fn(f64) -> f64) -> f64 {
    let (at_low, at_high) = (function(low), function(high));
    if at_low >= 0.0 {
        return low;
    }
    if at_high <= 0.0 {
        return high;
    }
    // The newest point and its value; the other side's end; the point before on either side.
    let (mut new, mut at_new) = (high, at_high);
    let (mut other, mut at_other) = (low, at_low);
    let mut part = 0.5;
    for _ in 0..MOST_STEPS {
        let next = new + part * (other - new);
        if next == new || next == other {
            break;
        }
        let found = function(next);
        let (old, at_old);
        if (found > 0.0) == (at_new > 0.0) {
            (old, at_old) = (new, at_new);
        } else {
            (old, at_old) = (other, at_other);
            (other, at_other) = (new, at_new);
        }
        (new, at_new) = (next, found);
        let width = (other - new).abs();
        if found == 0.0 || width <= 2.0 * precision {
            break;
        }
        let place = (new - other) / (old - other);
        let height = (at_new - at_other) / (at_old - at_other);
        part = if 1.0 - (1.0 - place).sqrt() < height && height < place.sqrt() {
            at_new / (at_other - at_new) * at_old / (at_other - at_old)
                + (old - new) / (other - new) * at_new / (at_old - at_new) * at_other
                    / (at_old - at_other)
        } else {
            0.5
        };
        let least = precision / width;
        // Not `clamp`, which panics where these are no numbers.
        part = part.max(least).min(1.0 - least);
    }
    if at_new.abs() < at_other.abs() {
        new
    } else {
        other
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_is_found_with_few_values() {
        for (name, root, function) in [
            ("a line", 0.3, (|x| x - 0.3) as fn(f64) -> f64),
            ("a power", 0.9, |x: f64| x.powi(9) - 0.9f64.powi(9)),
            ("a tail", 0.4, |x: f64| (-12.0f64).exp() - (-30.0 * x).exp()),
        ] {
            let asked = Cell::new(0);
            let found = crossing(0.0, 1.0, 1e-12, |x| {
                asked.set(asked.get() + 1);
                function(x)
            });
            assert!((found - root).abs() < 2e-12, "{name}: {found}");
            assert!(asked.get() < 20, "{name}: {} values", asked.get());
        }
    }

    #[test]
    fn a_jump_is_found_with_few_more_values_than_bisection_needs() {
        let asked = Cell::new(0);
        let found = crossing(0.0, 1.0, 1e-12, |x| {
            asked.set(asked.get() + 1);
            if x < 0.7 { -1e-9 } else { 1.0 }
        });
        assert!((found - 0.7).abs() < 2e-12, "{found}");
        assert!(asked.get() <= 43, "{} values", asked.get());
    }

    #[test]
    fn it_ends_where_numbers_are_no_finer() {
        for (low, high) in [(1e9, 1e9 + 1e-5), (0.0, 1e300), (-1e-300, 1e300)] {
            let root = low + (high - low) * 0.3;
            let enough = 1e-6 * (high - low) + 4.0 * f64::EPSILON * root;
            for precision in [0.0, 1e-12 * (high - low), f64::NAN] {
                let found = crossing(low, high, precision, |x| x - root);
                assert!((found - root).abs() <= enough, "{found}");
                let jump = crossing(low, high, precision, |x| if x < root { -1.0 } else { 2.0 });
                assert!((jump - root).abs() <= enough, "{jump}");
            }
        }
        // Of what is no number, any answer will do.
        crossing(0.0, f64::NAN, 1e-9, |x| x - 1.0);
        crossing(0.0, 1.0, 1e-9, |_| f64::NAN);
    }

    #[test]
    fn an_end_is_the_answer_if_zero_lies_beyond() {
        assert_eq!(crossing(0.0, 1.0, 1e-9, |x| x + 1.0), 0.0);
        assert_eq!(crossing(0.0, 1.0, 1e-9, |x| x - 2.0), 1.0);
    }
}
