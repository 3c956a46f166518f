# Holt's smoothing: forecasts each week's sales from the weeks before it, and prints how far it is off.
#   awk -F, -v level=0.4 -v trend=0.1 -f smooth.awk data/quay.csv
NR == 1 { next }  # the names of the columns
NR == 2 { smoothed = $2; next }
{
    forecast = smoothed + slope
    judged = role == "final" ? NR > 105 : NR > 53 && NR <= 105  # the last half year tests, the year before it decides
    if (judged) {
        error = $2 > forecast ? $2 - forecast : forecast - $2
        sum += error; squares += error * error; weeks++
    }
    before = smoothed
    smoothed = level * $2 + (1 - level) * forecast
    slope = trend * (smoothed - before) + (1 - trend) * slope
}
END {
    mean = sum / weeks
    printf "mae=%.4f stderr=%.4f\n", mean, sqrt((squares / weeks - mean * mean) / weeks)
    if (artifact) printf "smoothed,slope\n%.2f,%.4f\n", smoothed, slope > (artifact "/model.csv")
}
