"""The doctor: does every loss term reach the student it is meant for, and nothing else?"""

from dualstudent.doctor.diagnosis import Diagnosis, Reach
from dualstudent.doctor.examination import examine

__all__ = ["Diagnosis", "Reach", "examine"]
