//! The sample points of a session, drawn beside the heap.

use nthbyte_sampling::{Countdown, Period, SamplePoints};

/// The sample points that the heap is to have.
pub struct Prediction {
    pub points: SamplePoints,
    pub classes: Vec<Countdown>,
    pub large: Countdown,
    /// The period that the observer sets at the next sample.
    pub next_period: Option<Period>,
}

impl Prediction {
    pub fn of(mut points: SamplePoints, classes: usize) -> Self {
        let classes = (0..classes).map(|_| Countdown::new(&mut points)).collect();
        let large = Countdown::new(&mut points);
        Self {
            points,
            classes,
            large,
            next_period: None,
        }
    }

    /// Each distance is drawn anew.
    pub fn set_period(&mut self, period: Period) {
        self.points.set_period(period);
        self.draw_anew();
    }

    /// The same with other random numbers.
    pub fn diverge(&mut self, number: u64) {
        if self.points.diverge(number) {
            self.draw_anew();
        }
    }

    fn draw_anew(&mut self) {
        let next_period = self.next_period;
        *self = Self {
            next_period,
            ..Self::of(self.points.clone(), self.classes.len())
        };
    }
}
