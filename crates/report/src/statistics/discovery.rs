//! How many of the findings may be wrong.
//!
//! Thousands of rows are looked at, so some would look special by chance. The false discovery rate
//! is controlled by the procedure of Benjamini and Hochberg (JRSS B 57, 1995): of the rows that pass,
//! at most a given part is expected to have passed by chance. Rows share samples with those that they are part of,
//! and with no others; a row with more of the sought difference makes the one around it likelier to have more. This is
//! the positive dependence under which the procedure holds unchanged (Benjamini and Yekutieli, Annals of Statistics 29,
//! 2001, theorem 1.2).
//!
//! Most rows have so few samples that they could not pass whatever these say. Such tests need
//! not be counted (Tarone, Biometrics 46, 1990; for the false discovery rate: Gilbert, Applied
//! Statistics 54, 2005). What they could say at best does not depend on what they do say.

/// A test: what it says, and the least that it could have said with as much evidence.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The probability of something as unlikely, by chance alone.
    pub p: f64,
    /// The least that `p` could have been.
    pub least: f64,
}

/// Adjusts for the number of tests. The result of each, in the same order, is the smallest rate at
/// which it passes; it passes if that is at most `rate`. Also returns how many tests count.
#[must_use]
pub fn adjust(tests: &[Test], rate: f64) -> (Vec<f64>, usize) {
    let mut least: Vec<f64> = tests.iter().map(|test| test.least).collect();
    least.sort_by(f64::total_cmp);
    let able = |number: usize| least.partition_point(|&least| least <= rate / number as f64);
    // The smallest number that is at least as large as the number of tests able to pass with it.
    let number = (1..=tests.len())
        .find(|&number| able(number) <= number)
        .unwrap_or(1);
    let limit = rate / number as f64;
    let mut counted: Vec<usize> = (0..tests.len())
        .filter(|&test| tests[test].least <= limit)
        .collect();
    counted.sort_by(|&one, &other| tests[other].p.total_cmp(&tests[one].p));
    let mut adjusted = vec![1.0; tests.len()];
    let mut smallest: f64 = 1.0;
    for (place, &test) in counted.iter().enumerate() {
        let rank = counted.len() - place;
        smallest = smallest.min(tests[test].p * counted.len() as f64 / rank as f64);
        adjusted[test] = smallest;
    }
    (adjusted, counted.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(ps: &[f64]) -> Vec<Test> {
        ps.iter().map(|&p| Test { p, least: 0.0 }).collect()
    }

    #[test]
    fn as_benjamini_and_hochberg_do() {
        // The example of their paper, section 3.2: four of fifteen pass.
        let ps = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let (adjusted, counted) = adjust(&tests(&ps), 0.05);
        assert_eq!(counted, 15);
        assert_eq!(adjusted.iter().filter(|&&rate| rate <= 0.05).count(), 4);
        assert!((adjusted[3] - 0.0095 * 15.0 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn who_cannot_pass_does_not_count() {
        let mut all = tests(&[0.001; 1]);
        all.extend(
            [Test {
                p: 0.5,
                least: 0.25,
            }; 1000],
        );
        let (adjusted, counted) = adjust(&all, 0.05);
        assert_eq!(counted, 1);
        assert!(adjusted[0] <= 0.05 && adjusted[1] == 1.0);
    }
}
