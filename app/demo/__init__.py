"""The simulated fleet: MuJoCo plays reality, never PyBullet."""
