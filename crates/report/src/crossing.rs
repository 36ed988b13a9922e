//! Where a function passes zero.

/// The point between `low` and `high`, to within `precision`, where a rising function passes 0: an end, if it passes 0 beyond.
///
/// It is Chandrupatla's method ("A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function
/// without using derivatives", Advances in Engineering Software 28, 1997): inverse quadratic interpolation through the last three
/// points where that is safe, else the middle. Of a smooth function it takes some twelve values, of any function few more than
/// bisection.
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
    loop {
        let next = new + part * (other - new);
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
            return if at_new.abs() < at_other.abs() {
                new
            } else {
                other
            };
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
        part = part.clamp(least, 1.0 - least);
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
    fn an_end_is_the_answer_if_zero_lies_beyond() {
        assert_eq!(crossing(0.0, 1.0, 1e-9, |x| x + 1.0), 0.0);
        assert_eq!(crossing(0.0, 1.0, 1e-9, |x| x - 2.0), 1.0);
    }
}
