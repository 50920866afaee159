"""The denoising loop's parts: noise, schedules, solvers, chunks of steps, previews, and pictures to start from."""
