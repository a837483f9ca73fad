//! Selection by geographic distance.

use super::{Balance, BalancerSpec, Endpoint, Endpoints, Pick};
use std::sync::Arc;

/// `balance=closest`.
pub(super) const CLOSEST: BalancerSpec = BalancerSpec {
    name: "closest",
    make: |options| match (options.latitude, options.longitude) {
        (Some(latitude), Some(longitude)) => Ok(Arc::new(Closest::to(latitude, longitude))),
        _ => Err("the location of this client is missing: latitude=DEGREES&longitude=DEGREES"),
    },
};

/// Selects the endpoint nearest to a location, by the tags `latitude` and `longitude`; at random among equals.
/// Endpoints without these tags come last.
#[derive(Clone, Copy, Debug)]
pub struct Closest {
    latitude: f64,
    longitude: f64,
}

impl Closest {
    /// Selects the endpoint nearest to this location, in degrees; the south and the west are negative.
    pub fn to(latitude: f64, longitude: f64) -> Closest {
        Closest { latitude, longitude }
    }

    /// Great-circle distance in kilometres.
    fn distance(&self, endpoint: &Endpoint) -> f64 {
        let Some((latitude, longitude)) = endpoint.position() else { return f64::MAX };
        let (a, b) = (self.latitude.to_radians(), latitude.to_radians());
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let part = half(latitude - self.latitude) + a.cos() * b.cos() * half(longitude - self.longitude);
        // `max` and `min` turn NaN into a number, so that all distances can be ordered.
        2.0 * 6371.0 * part.max(0.0).sqrt().min(1.0).asin()
    }
}

impl Balance for Closest {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let distances =
            set.prepared(|set| set.iter().map(|endpoint| self.distance(endpoint)).collect::<Vec<_>>());
        match distances {
            Some(distances) => {
                let mut at = (0..set.len()).filter(|at| pick.accepts(&set[*at]));
                let first = at.next()?;
                let least = at.fold(distances[first], |least, at| least.min(distances[at]));
                let equals =
                    || (0..set.len()).filter(|at| distances[*at] == least && pick.accepts(&set[*at]));
                // An endpoint may have stopped taking calls since the first pass.
                equals().nth(pick.below(equals().count().max(1))).or(Some(first))
            }
            None => set.least(pick, |endpoint| self.distance(endpoint)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::discover::Instance;

    #[test]
    fn contract() {
        check_contract(&Closest::to(1.0, 2.0));
    }

    fn at(id: &str, latitude: &str, longitude: &str) -> Endpoint {
        let instance = Instance::new("a.B", "tcp://a:1").id(id);
        Endpoint::new(instance.tag("latitude", latitude).tag("longitude", longitude))
    }

    #[test]
    fn distances_match_published_ones() {
        let berlin = Closest::to(52.52, 13.405);
        let km = |latitude: f64, longitude: f64| {
            berlin.distance(&at("a", &latitude.to_string(), &longitude.to_string())).round()
        };
        assert_eq!(km(52.52, 13.405), 0.0);
        assert!((km(48.8566, 2.3522) - 878.0).abs() < 3.0, "Paris");
        assert!((km(-33.8688, 151.2093) - 16_090.0).abs() < 30.0, "Sydney");
        assert_eq!(berlin.distance(&Endpoint::new(Instance::new("a.B", "tcp://b:1"))), f64::MAX);
    }

    #[test]
    fn nearest_takes_all_calls_and_equals_share_them() {
        let set = Endpoints::new(vec![
            at("beijing-1", "39.9042", "116.4074"),
            at("beijing-2", "39.9042", "116.4074"),
            at("paris", "48.8566", "2.3522"),
            Endpoint::new(Instance::new("a.B", "tcp://d:1").id("somewhere")),
        ]);
        let shares = shares(&Closest::to(31.2304, 121.4737), &set, 10_000);
        assert_eq!(shares[2..], [0, 0]);
        assert!((4_700..5_300).contains(&shares[0]), "{shares:?}");
        // The shortest path crosses the date line.
        let set = Endpoints::new(vec![at("fiji", "-17.7", "178.0"), at("hawaii", "21.3", "-157.8")]);
        assert_eq!(Closest::to(-13.8, -171.7).pick(&set, &Pick::new("a.B/C", 0, 0)), Some(0));
    }
}
