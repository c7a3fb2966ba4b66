"""The doctor: checks that every loss term reaches its own student and no other network."""

from dualstudent.doctor.diagnosis import Diagnosis, Reach
from dualstudent.doctor.examination import examine

__all__ = ["Diagnosis", "Reach", "examine"]
