"""What a run is judged by: what clients were promised, what lies on disks, what tables have to be."""
